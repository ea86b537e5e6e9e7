from typing import Any

import pytest
import torch
from in_process import applied, ready, train
from torch.nn.functional import binary_cross_entropy_with_logits

from flambeau.data.jagged import from_lists
from flambeau.embeddings.attach import tables_of
from flambeau.errors import ModelError
from flambeau.models import DIN, build

IDS = torch.tensor([[1, 2], [3, 2], [1, 4]])
ITEM = torch.tensor([7, 8, 9])
HISTORY = from_lists([[8, 9], [], [7]])
DENSE = torch.tensor([[0.5], [1.0], [-2.0]])


def small(**changes: Any) -> DIN:
    torch.manual_seed(0)
    model = DIN(2, 1, 3, (5,), (4,), table={"initializer": {"scale": 1.0}}, **changes)
    ready(model)
    return model


@pytest.mark.parametrize("normalize", [False, True])
def test_the_formula(normalize: bool) -> None:
    model = small(normalize=normalize)
    rows = model.item(torch.arange(10))
    expected = []
    for row, history in enumerate([[8, 9], [], [7]]):
        item = rows[ITEM[row]]
        weights = []
        for seen in history:
            pair = torch.cat([rows[seen], item, rows[seen] - item, rows[seen] * item])
            weights.append(applied(model.attention, pair)[0])
        if normalize and weights:
            weights = list(torch.softmax(torch.stack(weights), 0))
        interest = torch.zeros(3)
        for weight, seen in zip(weights, history, strict=True):
            interest = interest + weight * rows[seen]
        fields = model.inputs.embedding(IDS[row : row + 1])[0].flatten()
        inputs = torch.cat([fields, DENSE[row], item, interest])
        expected.append(applied(model.top, inputs)[0])
    found = model(IDS, ITEM, HISTORY, DENSE)
    assert torch.allclose(found, torch.stack(expected), atol=1e-6)


def test_logits_begin_at_the_base_rate() -> None:
    model = small(base_rate=0.2)
    torch.nn.init.zeros_(model.top[-1].weight)
    assert torch.allclose(torch.sigmoid(model(IDS, ITEM, HISTORY, DENSE)), torch.tensor(0.2))


@pytest.mark.parametrize("normalize", [False, True])
def test_longer_histories_of_other_rows_do_not_matter(normalize: bool) -> None:
    model = small(normalize=normalize)
    longer = from_lists([[8, 9], [], [7, 1, 2, 3, 4, 5]])
    found = model(IDS, ITEM, HISTORY, DENSE)[:2]
    assert torch.allclose(found, model(IDS, ITEM, longer, DENSE)[:2], atol=1e-6)


def test_batches_without_any_history_work_and_give_all_weights_a_gradient() -> None:
    model = small()
    model(IDS, ITEM, from_lists([[], [], []]), DENSE).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_history_shares_the_items_table() -> None:
    assert sorted(spec.name for spec in tables_of(DIN(2))) == ["embeddings", "item"]


def test_the_history_trains_the_items_rows() -> None:
    model = DIN(2, 1, 3)
    tables = ready(model)
    model(IDS, ITEM, HISTORY, DENSE).sum().backward()
    gradient = next(g for g in tables.lookups.gradients() if g.spec.name == "item")
    assert sorted(gradient.ids.tolist()) == [7, 8, 9]


def test_training_lowers_the_loss() -> None:
    model = DIN(2, 1, 4, (8,))
    label = torch.tensor([1.0, 0.0, 1.0])
    before, after = train(
        model, lambda: binary_cross_entropy_with_logits(model(IDS, ITEM, HISTORY, DENSE), label)
    )
    assert after < 0.8 * before


def test_missing_numbers_are_named() -> None:
    with pytest.raises(ModelError, match=r"made for 1 dense column, and got 0"):
        small()(IDS, ITEM, HISTORY)


def test_it_is_built_by_name() -> None:
    assert isinstance(build("din", fields=2, dense=1), DIN)
