"""Spark's vectors, as Arrow has them."""

import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from flambeau.config import Binding
from flambeau.data.arrow_columns import to_columns
from flambeau.data.binding import Binder, Shape
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError
from flambeau.inference.shorthands import expand

KIND = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)


def dense(*values: float) -> dict:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size: int, entries: dict[int, float]) -> dict:
    return {
        "type": 0,
        "size": size,
        "indices": list(entries),
        "values": list(entries.values()),
    }


def batch(*vectors: dict | None) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(vectors, KIND)})


MIXED = batch(dense(1, 2, 0), sparse(3, {2: 5.0}), sparse(3, {}), dense(0, 0, 7))
AS_TENSOR = torch.tensor([[1.0, 2, 0], [0, 0, 5], [0, 0, 0], [0, 0, 7]], dtype=torch.float64)


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 3), slice(0, 1), slice(3, 4)])
def test_vectors_are_a_tensor(rows: slice) -> None:
    part = MIXED.slice(rows.start, rows.stop - rows.start)
    found = to_columns(part)["x"]
    assert isinstance(found, Tensor)
    assert torch.equal(found, AS_TENSOR[rows])


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 3)])
def test_or_bags_of_positions(rows: slice) -> None:
    part = MIXED.slice(rows.start, rows.stop - rows.start)
    bags = to_columns(part, bags=frozenset({"x"}))["x"]
    assert isinstance(bags, Jagged)
    lengths = torch.tensor([3, 1, 0, 3])[rows]
    assert torch.equal(bags.lengths, lengths)
    rebuilt = torch.zeros(len(lengths), 3, dtype=torch.float64)
    rebuilt[bags.rows, bags.ids] = bags.values
    assert torch.equal(rebuilt, AS_TENSOR[rows])


def test_only_dense_ones_are_not_looked_at_one_by_one() -> None:
    found = to_columns(batch(dense(1, 2), dense(3, 4)))["x"]
    assert torch.equal(found, torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64))


def test_vectors_of_several_sizes() -> None:
    with pytest.raises(DataError, match=r"column 'x': vectors of 2 to 3 numbers"):
        to_columns(batch(dense(1, 2), dense(1, 2, 3)))


def test_a_vector_that_is_missing() -> None:
    with pytest.raises(DataError, match="column 'x': the vector of row 1 of the batch is missing"):
        to_columns(batch(dense(1), None))


class WantsBags(nn.Module):
    def forward(self, x: Tensor | Jagged) -> Tensor: ...


class WantsTensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor: ...


@pytest.mark.parametrize(("model", "kind"), [(WantsBags, Jagged), (WantsTensor, Tensor)])
def test_the_model_says_which(model: type[nn.Module], kind: type) -> None:
    binder = Binder(Binding(), model().forward, Shape(("x",)), expand=expand)
    assert isinstance(binder.read(MIXED)["x"], kind)
