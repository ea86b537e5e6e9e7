"""The first look at model and data: integers that are numbers, and what does not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

from flambeau.config import Binding
from flambeau.data.binding import Binder
from flambeau.data.loader import in_order
from flambeau.data.source import Source
from flambeau.data.sources.parquet import ParquetSource
from flambeau.data.sources.text.csv import CsvSource
from flambeau.data.sources.text.libsvm import open_libsvm
from flambeau.embeddings import SparseEmbedding, TableSpec
from flambeau.errors import DataError, ModelError
from flambeau.inference.shorthands import expand
from flambeau.runs.dry_run import dry_run, suit
from flambeau.runs.open_data import array_source, shape_of
from flambeau.training.losses import build_loss

LINES = ["age,visits,item,label", "31,4,7,1", "45,2,9,0", "50,1,9,0"]
GAP = "60,,9,1"
X = {"x": ["age", "visits"]}


class Dense(nn.Module):
    """Takes numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x.flatten(1))
        return result


class Wide(nn.Module):
    """Takes numbers and ids."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        self.rows, self.layer = rows, nn.Linear(2, 1)

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x) + self.rows(ids).sum(1, keepdim=True)
        return result


def text(path: Path, *lines: str, **options: Any) -> CsvSource:
    (path / "a.csv").write_text("\n".join([*LINES, *lines]) + "\n")
    return CsvSource(str(path / "a.csv"), **options)


def looked(model: nn.Module, source: Source, inputs: Any = None, **settings: Any) -> Binder:
    """The binder after the first look at model and data."""
    binding = Binding(inputs=inputs or X, label="label", **settings)
    binder = Binder(binding, model.forward, shape_of(source), expand=expand)
    return dry_run(model, source, binder, build_loss("bce"), None)


def rows_of(source: Source, binder: Binder, name: str = "x") -> list[Any]:
    (batch,) = in_order(source, binder, 100)
    found: list[Any] = batch[name].tolist()
    return found


def test_integers_are_numbers_for_a_model_of_numbers(tmp_path: Path) -> None:
    source = text(tmp_path)
    binder = looked(Dense(), source)
    assert binder.numbers == {"age", "visits"}
    assert rows_of(source, binder)[0] == [31.0, 4.0]
    (batch,) = in_order(source, binder, 100)
    assert batch["x"].dtype is torch.float32


def test_integers_of_arrays_too() -> None:
    data = {"age": np.array([31, 45]), "visits": np.array([True, False]), "label": np.ones(2)}
    source = array_source(data)
    assert rows_of(source, looked(Dense(), source)) == [[31.0, 1.0], [45.0, 0.0]]


def test_one_column_of_lists_too() -> None:
    source = array_source({"ages": np.array([[31, 4], [45, 2]]), "label": np.ones(2)})
    assert rows_of(source, looked(Dense(), source, {"x": "ages"}), "ages") == [[31, 4], [45, 2]]


@pytest.mark.parametrize(
    "rows",
    [nn.Embedding(20, 2), SparseEmbedding(TableSpec("item", 2))],
    ids=["torch's", "Flambeau's"],
)
def test_ids_stay_ids_beside_integers_that_are_numbers(tmp_path: Path, rows: nn.Module) -> None:
    source = text(tmp_path)
    inputs = {"ids": "item", "x": ["age", "visits"]}
    binder = looked(Wide(rows), source, inputs)
    assert binder.numbers == {"age", "visits"}
    assert rows_of(source, binder, "item") == [7, 9, 9]
    (batch,) = in_order(source, binder, 100)
    assert batch["item"].dtype is torch.int64


def test_a_model_that_takes_integers_gets_them(tmp_path: Path) -> None:
    class Counts(Dense):
        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype is torch.int64
            return super().forward(x.float())

    assert looked(Counts(), text(tmp_path)).numbers == frozenset()


def test_keys_and_groups_stay_integers(tmp_path: Path) -> None:
    source = text(tmp_path)
    binder = looked(Dense(), source, keys=("age",), group="visits")
    (batch,) = in_order(source, binder, 100)
    assert binder.key(batch, "age").tolist() == [31, 45, 50]
    group = binder.group(batch)
    assert isinstance(group, Tensor)
    assert group.dtype is torch.int64


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_gap_needs_fill_and_the_error_names_the_column(tmp_path: Path, place: str) -> None:
    lines = [LINES[0], GAP, *LINES[1:]] if place == "first" else [*LINES, GAP]
    (tmp_path / "b.csv").write_text("\n".join(lines) + "\n")
    source = CsvSource(str(tmp_path / "b.csv"))
    message = r"column 'visits' has no value in row \d of the batch.*fill=\{'visits': 0.0\}"
    with pytest.raises(DataError, match=message):
        rows_of(source, looked(Dense(), source))
    for fill in (0.0, {"visits": 0.0}):
        assert [60.0, 0.0] in rows_of(source, looked(Dense(), source, fill=fill))


def test_one_text_in_a_column_of_numbers_is_named(tmp_path: Path) -> None:
    source = text(tmp_path, "60,many,9,1")
    with pytest.raises(
        DataError,
        match=r"column 'visits' holds text.*numbers are needed.*types=\{'visits': 'float64'\}",
    ):
        looked(Dense(), source)
    with pytest.raises(DataError, match=r"a.csv line 5: column 'visits': .*'many'"):
        text(tmp_path, "60,many,9,1", types={"visits": "float64"})


def test_a_missing_id_is_named_where_the_model_takes_tensors(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.one_hot(ids.flatten() % 4, 4).float()[:, 0]

    source = text(tmp_path, GAP)
    with pytest.raises(ModelError, match=r"Tensor.flatten was given 'visits'.*or none"):
        looked(Flat(), source, {"ids": "visits"})
    with pytest.raises(ModelError, match=r"torch's embedding was given 'visits'.*or none"):
        looked(nn.Embedding(20, 1), source, {"input": "visits"})


def test_a_missing_id_is_an_empty_bag_for_a_table(tmp_path: Path) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = SparseEmbedding(TableSpec("visits", 1), "sum")

        def forward(self, ids: Tensor) -> Tensor:
            result: Tensor = self.rows(ids)
            return result

    source = text(tmp_path, GAP)
    binder = looked(Rows().eval(), source, {"ids": ["visits"]}, fill=0.0)
    (batch,) = in_order(source, binder, 100)
    assert binder.numbers == frozenset()
    assert Rows().eval()(batch["ids"]).shape == (4, 1)


def test_what_does_not_fit_in_either_way_is_the_model_s_own_error(tmp_path: Path) -> None:
    message = r"fails on the first rows of train=: mat1 and mat2.*its inputs are x: \[2, 3\] int64"
    with pytest.raises(ModelError, match=message):
        looked(Dense(), text(tmp_path), {"x": ["age", "visits", "item"]})


def test_inputs_of_ids_are_named_too(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, features: Any) -> Tensor:
            raise RuntimeError("no")

    (tmp_path / "a.libsvm").write_text("1 1:1\n0 2:1\n")
    source = open_libsvm(str(tmp_path / "a.libsvm"))
    with pytest.raises(ModelError, match=r"its inputs are features: a Jagged of 2 rows$"):
        looked(Fails(), source, {"features": "features"})


def test_a_model_in_use_gets_numbers_as_in_training(tmp_path: Path) -> None:
    source = text(tmp_path)
    model = Dense().eval()
    binder = Binder(Binding(inputs=X), model.forward, shape_of(source), expand=expand)
    assert suit(model, source, binder, None).numbers == {"age", "visits"}


def test_nan_in_arrays_is_filled_by_one_number_for_all(tmp_path: Path) -> None:
    data = {"age": np.array([31, np.nan]), "visits": np.ones(2), "label": np.ones(2)}
    with pytest.raises(DataError, match=r"'age' holds NaN.*fill=0.0 for all"):
        array_source(data)
    binding = Binding(inputs=X, label="label", fill=0.0)
    source = array_source(data, binding)
    assert rows_of(source, looked(Dense(), source, fill=0.0)) == [[31.0, 1.0], [0.0, 1.0]]
    with pytest.raises(DataError, match="'label' holds NaN"):
        array_source({**data, "label": np.array([1, np.nan])}, binding)
    with pytest.raises(DataError, match="'y' holds NaN"):
        array_source((data["visits"], data["age"]), Binding(fill=0.0))


def test_rows_of_several_ids_that_are_not_pooled_are_explained(tmp_path: Path) -> None:
    ids = pa.array([[1, 2], [3], []], pa.list_(pa.int64()))
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"ids": ids, "label": [0.0, 1.0, 0.0]}), path)
    source = ParquetSource(str(path))
    message = r"several ids in 'ids'.*table 'c' pooling='sum', 'mean' or 'max'"
    with pytest.raises(ModelError, match=message):
        looked(Bags(), source, {"ids": "ids"})


class Bags(nn.Module):
    """Expects one id in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.layer = SparseEmbedding(TableSpec("c", 4)), nn.Linear(4, 1)

    def forward(self, ids: Tensor) -> Tensor:
        result: Tensor = self.layer(self.rows(ids))
        return result
