"""What all models over fields have in common."""

from typing import Any

import numpy as np
import pytest
import torch
from tiny_clicks import DENSE, DIM, FIELDS, SMALL, attached, small, tiny
from torch import nn
from torch.nn import functional as F

from flambeau.config.tables import MinCount
from flambeau.data import jagged
from flambeau.data.jagged import Jagged
from flambeau.embeddings.attach import prefetch_columns, tables_of
from flambeau.embeddings.fields import table_id
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.models import MODELS, build
from flambeau.models.ctr import FIELD_MODELS

every_model = pytest.mark.parametrize("name", FIELD_MODELS)
deep_models = pytest.mark.parametrize(
    "name", [name for name in FIELD_MODELS if name not in ("lr", "fm", "ffm", "afm")]
)


def test_each_is_known_by_name() -> None:
    assert SMALL.keys() == FIELD_MODELS.keys() <= MODELS.keys()
    assert type(build("deepfm", fields=2, dense=0)).__name__ == "DeepFM"


def test_their_loss_is_that_of_logits() -> None:
    assert {kind.default_loss for kind in FIELD_MODELS.values()} == {"bce"}  # type: ignore[attr-defined]


@every_model
def test_a_missing_id_counts_as_zeros_and_several_are_summed(name: str) -> None:
    case = tiny(name)
    # Row 0 has no id in field 1, and ids 1 and 3 in field 2; the second counts twice.
    lengths = torch.tensor([1, 0, 2])
    bags = Jagged(
        torch.tensor([int(case.ids[0, 0]), 1, 3]),
        torch.cat([torch.zeros(1).long(), lengths.cumsum(0)]),
        torch.tensor([1.0, 1.0, 2.0]).double(),
        width=FIELDS,
    )
    rows_of = {
        each.spec.name: each.rows if hasattr(each, "rows") else each
        for each in case.model.modules()
        if hasattr(each, "spec")
    }
    expected = {}
    for table, module in rows_of.items():
        first, third = module(torch.tensor([[int(case.ids[0, 0]), 0, 1], [0, 0, 3]])).detach()
        expected[table] = torch.stack([first[0], first[1] * 0, first[2] + 2 * third[2]])
    found = case.model(bags, case.numbers[:1]).detach()
    for table, module in rows_of.items():
        module.forward = lambda _, table=table: expected[table][None]
    torch.testing.assert_close(found, case.model(case.ids[:1], case.numbers[:1]).detach())


@every_model
def test_all_forms_of_ids_give_the_same_logits(name: str) -> None:
    case = tiny(name)
    expected = case.logits()
    flat = case.ids.flatten()
    offsets = torch.arange(len(case.ids) + 1) * FIELDS
    order = torch.tensor([2, 0, 1])
    known = Jagged(case.ids[:, order].flatten(), offsets, None, order.repeat(len(case.ids)))
    for ids in (jagged.stack([case.ids]), Jagged(flat, offsets), known):
        with torch.no_grad():
            np.testing.assert_allclose(case.model(ids, case.numbers), expected, rtol=1e-12)


@every_model
def test_gradients_reach_every_parameter_and_every_row(name: str) -> None:
    case = tiny(name, seed=6)  # one with which no ReLU is off for all rows
    lookups = next(m.lookups for m in case.model.modules() if hasattr(m, "lookups"))
    lookups.discard()
    case.model(case.ids, case.numbers).square().sum().backward()
    idle = [key for key, p in case.model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not idle
    places = {table_id(int(id), field) for row in case.ids for field, id in enumerate(row.tolist())}
    gradients = lookups.gradients()
    assert {each.spec.name for each in gradients} == {s.name for s in tables_of(case.model)}
    for gradient in gradients:
        assert set(gradient.ids.tolist()) == places
        assert gradient.grads.any(axis=1).all()


@every_model
def test_training_lowers_the_loss(name: str) -> None:
    torch.manual_seed(0)
    model = small(name)
    tables = attached(model)
    ids = torch.randint(0, 3, (64, FIELDS))
    numbers = torch.randn(64, DENSE)
    label = ((ids[:, 0] == ids[:, 1]) | (numbers[:, 0] > 0.5)).float()
    losses = []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        loss = F.binary_cross_entropy_with_logits(model(ids, numbers), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tables.step(factor=10.0)
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.03


@every_model
def test_logits_begin_at_the_base_rate(name: str) -> None:
    ids, numbers = torch.ones(4, FIELDS, dtype=torch.int64), torch.ones(4, DENSE)
    logits = []
    for rate in ({}, {"base_rate": 0.2}):
        torch.manual_seed(0)
        logits.append(small(name, **rate).eval()(ids, numbers))
    torch.testing.assert_close(logits[1] - logits[0], torch.full((4,), np.log(0.25)).float())


@every_model
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 25.0, float("nan"), "abc"])
def test_a_base_rate_that_is_no_share_is_refused(name: str, rate: Any) -> None:
    with pytest.raises(ModelError, match="give the share of ones among the labels"):
        small(name, base_rate=rate)


@every_model
def test_rows_may_have_no_numbers(name: str) -> None:
    model = small(name, dense=0)
    attached(model)
    ids = torch.ones(4, FIELDS, dtype=torch.int64)
    logits = model(ids)
    assert logits.shape == (4,)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ModelError, match=r"shape \(4, 2\); the model has dense=0"):
        model(ids, torch.zeros(4, 2))


@every_model
def test_numbers_may_be_integers(name: str) -> None:
    model = small(name).eval()
    ids = torch.ones(2, FIELDS, dtype=torch.int64)
    numbers = torch.tensor([[1, 2], [3, 4]])
    assert torch.equal(model(ids, numbers), model(ids, numbers.float()))


@every_model
def test_one_row_and_no_row_do_as_well(name: str) -> None:
    model = small(name).eval()
    for rows in (1, 0):
        ids = torch.ones(rows, FIELDS, dtype=torch.int64)
        assert model(ids, torch.ones(rows, DENSE)).shape == (rows,)


@every_model
def test_numbers_of_another_shape_are_refused(name: str) -> None:
    model = small(name).eval()
    ids = torch.ones(4, FIELDS, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"has dense=2, and forward\(\) got no dense"):
        model(ids)
    with pytest.raises(ModelError, match=r"shape \(4, 3\).* give \[4, 2\]"):
        model(ids, torch.zeros(4, 3))
    with pytest.raises(ModelError, match=r"shape \(3, 2\).* the ids 4 rows"):
        model(ids, torch.zeros(3, 2))


@every_model
def test_ids_of_another_shape_are_refused(name: str) -> None:
    model = small(name).eval()
    numbers = torch.zeros(2, DENSE)
    with pytest.raises(ModelError, match="one id for each of 3 fields"):
        model(torch.ones(2, 4, dtype=torch.int64), numbers)
    with pytest.raises(ModelError, match=r"shape \(2, 3, 1\); give \[rows, fields\]"):
        model(torch.ones(2, 3, 1, dtype=torch.int64), numbers)
    with pytest.raises(ModelError, match=r"ids are torch.float32"):
        model(torch.ones(2, 3), numbers)
    with pytest.raises(DataError, match="row 0 of the batch has 2 ids"):
        model(jagged.from_lists([[1, 2], [1, 2, 3]]), numbers)


@every_model
def test_a_seed_decides_the_first_weights(name: str) -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(7)
        return [p.detach().clone() for p in small(name).parameters()]

    for one, other in zip(weights(), weights(), strict=True):
        assert torch.equal(one, other)


@every_model
def test_its_tables_are_named_and_fetched_early(name: str) -> None:
    tables = {spec.name: spec for spec in tables_of(small(name, table={"admission": MinCount(2)}))}
    linear = {"lr", "fm", "ffm", "wide_and_deep", "deepfm", "xdeepfm", "afm", "field_attention"}
    expected = {} if name == "lr" else {"embeddings": DIM * (FIELDS if name == "ffm" else 1)}
    expected |= {"linear": 1} if name in linear else {}
    assert {key: spec.dim for key, spec in tables.items()} == expected
    assert all(spec.admission == MinCount(2) for spec in tables.values())
    columns = prefetch_columns(small(name))
    assert {(each.spec.name, each.name) for each in columns} == {(key, "ids") for key in expected}


@deep_models
@pytest.mark.parametrize("wrong", [{"fields": None}, {"fields": 0}, {"fields": -1}])
def test_they_need_fields(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="this model needs a number of fields"):
        small(name, **wrong)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("ffm", {"fields": None}, "needs a number of fields"),
        ("lr", {"fields": -2}, "fields=-2"),
        ("lr", {"dense": -1}, "dense=-1"),
        ("fm", {"embedding_dim": 0}, "embedding_dim=0"),
        ("fm", {"fields": None, "embedding_dim": 0}, "embedding_dim=0"),
        ("pnn", {"dense": -1}, "dense=-1"),
        ("pnn", {"product": "middle"}, "give 'inner', 'outer' or 'both'"),
        ("dcn", {"cross_layers": 0}, "cross_layers=0"),
        ("dcnv2", {"cross_layers": 0}, "cross_layers=0"),
        ("dcnv2", {"rank": 0}, "rank=0"),
        ("dcnv2", {"structure": "above"}, "give 'parallel' or 'stacked'"),
        ("xdeepfm", {"cin": ()}, r"cin=\(\)"),
        ("afm", {"attention": 0}, "attention=0"),
        ("afm", {"fields": 1}, "two fields for a pair"),
        ("autoint", {"layers": 0}, "layers=0"),
        ("autoint", {"heads": 0}, "heads=0"),
        ("dlrm", {"fields": 1, "dense": 0}, "two vectors for a product"),
        ("field_attention", {"heads": 3}, "divide embedding_dim=2"),
        ("final_mlp", {"heads": 3}, "divide the last layers' 4 and 6"),
        ("final_mlp", {"contexts": ([0], [3])}, "fields, 0 to 2"),
        ("deepfm", {"hidden": (4, 0)}, r"sizes \(4, 0\)"),
        ("deepfm", {"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_arguments_that_make_no_model_are_refused(
    name: str, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        small(name, **wrong)


def test_an_argument_that_a_model_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"arguments of model 'deepfm'.*hidden"):
        build("deepfm", layers=3)


@deep_models
def test_dropout_and_batch_norm_are_in_the_deep_part(name: str) -> None:
    if name == "autoint":
        model = small(name, hidden=(4,), dropout=0.5, batch_norm=True)
    else:
        model = small(name, dropout=0.5, batch_norm=True)
    kinds = {type(module) for module in model.modules()}
    assert {nn.Dropout, nn.BatchNorm1d} <= kinds


def test_one_field_may_be_a_column_without_a_second_dimension() -> None:
    model = small("deepfm", fields=1, dense=1).eval()
    assert model(torch.tensor([1, 2]), torch.tensor([0.5, 1.0])).shape == (2,)
