"""Fields with few values: weights of the model, which stand in for rows of the table exactly."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from flambeau.config import optim
from flambeau.data import jagged
from flambeau.data.jagged import Jagged, from_lists
from flambeau.embeddings import train_in_process
from flambeau.embeddings.fields import table_id
from flambeau.errors import DataError, ModelError
from flambeau.models.ctr import DLRM, FIELD_MODELS, FM, DeepFM
from flambeau.models.ctr.layers.field_sizes import small_fields
from flambeau.models.ctr.layers.fields import FieldEmbedding

SIZES = [3, 1000, 4, 5, 1000]
DIM = 2


def both(sizes: Any = tuple(SIZES)) -> tuple[FieldEmbedding, FieldEmbedding]:
    """An embedding with dense fields, and one without whose table has the same rows for all."""
    small = FieldEmbedding(5, DIM, small=small_fields(5, list(sizes), 10))
    plain = FieldEmbedding(5, DIM)
    for module in (small, plain):
        train_in_process(module, optim("sgd", lr=1.0))
    assert small.dense is not None
    weight, dense = small.dense.weight.detach(), small.dense.small
    starts = np.cumsum([0, *dense.sizes])
    for place, size, start in zip(dense.places, dense.sizes, starts, strict=False):
        ids = np.array([table_id(number, place) for number in range(size)])
        _load(plain, ids, weight[start : start + size].numpy())
    rest = dense.others
    if rest:
        rows = np.random.default_rng(1).normal(size=(len(rest) * 9, DIM)).astype(np.float32)
        ids = np.array([table_id(number, place) for place in rest for number in range(9)])
        for module in (small, plain):
            _load(module, ids, rows)
    return small, plain


def _load(module: FieldEmbedding, ids: Any, rows: Any) -> None:
    assert module.rows is not None
    assert module.rows.lookups is not None
    module.rows.lookups.backend.load(module.rows.spec, ids, np.ascontiguousarray(rows))


IDS = torch.tensor([[0, 1, 2, 4, 3], [2, 8, 0, 0, 3], [1, 1, 3, 2, 0]])
MISSING = torch.tensor([[-1, 1, 2, -1, 3], [2, -1, -1, 0, 3], [-1, -1, -1, -1, -1]])
FORMS: dict[str, Tensor | Jagged] = {
    "tensor": IDS,
    "narrow": IDS.to(torch.int32),
    "bags": jagged.stack([IDS]),
    "a bag in a row": Jagged(IDS.flatten(), torch.arange(4) * 5),
    "missing": jagged.with_gaps(MISSING, -1),
    "by field": Jagged(
        torch.tensor([1, 2, 2, 4]), torch.tensor([0, 3, 3, 4]), fields=torch.tensor([3, 0, 0, 1])
    ),
    "values": jagged.stack([from_lists([[1], []], [[0.5], []]) for _ in range(5)]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [SIZES, [3, 9, 4, 5, 9], [99, 9, 99, 9, 9]], ids=str)
def test_rows_are_those_of_a_table_with_the_same_values(form: str, sizes: list[int]) -> None:
    small, plain = both(sizes)
    found, expected = small(FORMS[form]), plain(FORMS[form])
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("form", ["tensor", "missing", "values", "by field"])
def test_gradients_are_those_of_a_table(form: str) -> None:
    small, plain = both()
    factors = torch.randn(len(FORMS[form]), 5, DIM)
    for module in (small, plain):
        (module(FORMS[form]) * factors).sum().backward()
    gradient = small.dense.weight.grad  # type: ignore[union-attr]
    assert gradient is not None
    lookups: Any = plain.rows.lookups  # type: ignore[union-attr]
    (table,) = lookups.gradients()
    expected = {int(key): row for key, row in zip(table.ids, table.grads, strict=True)}
    start = 0
    for place, size in ((0, 3), (2, 4), (3, 5)):
        for number in range(size):
            wanted = expected.pop(table_id(number, place), np.zeros(DIM, np.float32))
            np.testing.assert_allclose(gradient[start + number].numpy(), wanted, atol=1e-6)
        start += size
    own: Any = small.rows.lookups  # type: ignore[union-attr]
    (rest,) = own.gradients()
    assert set(rest.ids.tolist()) == set(expected)
    for key, row in zip(rest.ids.tolist(), rest.grads, strict=True):
        np.testing.assert_allclose(row, expected[key], atol=1e-6)


def test_all_fields_may_be_dense() -> None:
    module = FieldEmbedding(2, 3, small=small_fields(2, [4, 4], 5))
    assert module.rows is None
    rows = module(torch.tensor([[1, 2], [3, 3]]))
    assert torch.equal(rows[0, 1], module.dense.weight[6])  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="one id for each of 2 fields"):
        module(torch.tensor([[1, 2, 3]]))


def test_the_first_values_follow_the_settings_of_the_table() -> None:
    model = DeepFM(5, 0, 4, sizes=SIZES, dense_below=10)
    assert model.linear.ids.dense.weight.abs().max() == 0  # type: ignore[union-attr]
    weight = model.embeddings.dense.weight  # type: ignore[union-attr]
    assert 0 < weight.abs().max() <= 0.05
    table = {"initializer": {"kind": "constant", "value": 0.5}, "dtype": "fp64", "trainable": False}
    frozen = FieldEmbedding(5, 2, small=small_fields(5, SIZES, 10), **table).dense
    assert frozen is not None
    assert (frozen.weight == 0.5).all()
    assert frozen.weight.dtype is torch.float64
    assert not frozen.weight.requires_grad


@pytest.mark.parametrize("name", FIELD_MODELS)
def test_every_model_takes_sizes(name: str) -> None:
    model = FIELD_MODELS[name](fields=5, dense=0, sizes=SIZES, dense_below=10)
    train_in_process(model, optim("sgd", lr=0.1))
    scores = model(IDS)
    scores.sum().backward()
    dense = [weight for key, weight in model.named_parameters() if key.endswith("dense.weight")]
    assert dense
    assert all(weight.shape[0] == 12 and weight.grad is not None for weight in dense)


@pytest.mark.parametrize("id", [3, -1])
@pytest.mark.parametrize("as_bags", [False, True])
def test_an_id_from_outside_is_an_error_that_names_the_field(id: int, as_bags: bool) -> None:
    sizes = dict(zip("abcde", SIZES, strict=True))
    model = FM(5, 0, 2, sizes=sizes, dense_below=10)
    train_in_process(model, optim("sgd", lr=0.1))
    ids = IDS.clone()
    ids[1, 0] = id
    with pytest.raises(DataError, match=rf"field 'a' has the id {id}, .* its ids are 0 to 2: "):
        model(jagged.stack([ids]) if as_bags else ids)
    ids[1, 0], ids[1, 1] = 0, 1 << 40  # a table takes any id
    assert model(ids).shape == (3,)


# Of any model with tables, whose rows are no leaves where the compiled part takes over.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_model_gives_the_same_and_refuses_the_same_ids() -> None:
    model = FM(5, 0, 2, sizes=SIZES, dense_below=10)
    train_in_process(model, optim("sgd", lr=0.1))
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(IDS), model(IDS))
    ids = IDS.clone()
    ids[1, 0] = 3
    with pytest.raises(DataError, match="has the id 3"):
        compiled(ids)


def test_a_field_without_a_name_has_its_number() -> None:
    model = FM(5, 0, 2, sizes=SIZES, dense_below=10)
    train_in_process(model, optim("sgd", lr=0.1))
    ids = IDS.clone()
    ids[2, 3] = 5
    with pytest.raises(DataError, match=r"field 3 of the ids has the id 5, .* 0 to 4"):
        model(ids)


@pytest.mark.parametrize(
    ("sizes", "below", "message"),
    [
        (None, 10, "dense_below=10 needs sizes="),
        ([1, 2], 10, r"sizes= is of 2 fields, and the model has fields=26: .* pipeline\.sizes_\["),
        ([1] * 25 + [0], None, "field 25 of the ids has 0 values"),
        ([1] * 25 + [2.5], None, "has 2.5 values"),
        ([1] * 25 + [True], None, "has True values"),
        ("features", 10, "sizes='features': give the number of values"),
        (3, 10, "sizes=3: give the number of values"),
        ([1] * 26, 0, "dense_below=0: must be at least 1"),
    ],
)
def test_wrong_sizes_are_refused(sizes: Any, below: int | None, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        DLRM(sizes=sizes, dense_below=below)


def test_sizes_need_fields() -> None:
    with pytest.raises(ModelError, match="fields=None"):
        FM(None, sizes=[1, 2], dense_below=3)


def test_rows_from_a_file_do_not_go_with_dense_fields() -> None:
    table = {"embeddings": {"init": "rows.parquet"}}
    with pytest.raises(ModelError, match=r"init='rows.parquet' .* leave init or dense_below out"):
        DLRM(5, 2, sizes=SIZES, dense_below=10, table=table)


def test_sizes_alone_change_nothing() -> None:
    model = DLRM(5, 2, sizes=SIZES)
    assert model.embeddings.dense is None
    assert model.embeddings.rows is not None
    assert model.embeddings.rows.only is None
    none_below = DLRM(5, 2, sizes=SIZES, dense_below=3)
    assert none_below.embeddings.dense is None
