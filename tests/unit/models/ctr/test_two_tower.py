import math

import pytest
import torch
from in_process import applied, ready, train
from torch import Tensor
from torch.nn.functional import cross_entropy

from flambeau.data.jagged import from_lists, one_id, stack
from flambeau.embeddings.attach import tables_of
from flambeau.errors import DataError, ModelError
from flambeau.models import TwoTower
from flambeau.models.ctr.layers.in_batch import InBatchLogits

USER = torch.tensor([1, 2, 3])
ITEM = torch.tensor([[7, 1], [8, 1], [7, 2]])
PRICE = torch.tensor([[0.5], [1.0], [2.0]])


def small() -> TwoTower:
    torch.manual_seed(0)
    model = TwoTower(
        1, 2, 3, (5,), 4, item_dense=1, temperature=0.5, table={"initializer": {"scale": 1.0}}
    )
    ready(model)
    return model


def unit(row: Tensor) -> Tensor:
    return row / (row * row).sum().sqrt()


def test_the_formula() -> None:
    model = small()
    shares = torch.tensor([0.2, 0.1, 0.2])
    found = model(USER, ITEM, item_dense=PRICE, item_probability=shares)
    users, items = [], []
    for row in range(3):
        own = model.user_inputs.embedding(USER[row : row + 1, None])[0].flatten()
        users.append(unit(applied(model.user_tower, own)))
        own = model.item_inputs.embedding(ITEM[row : row + 1])[0].flatten()
        items.append(unit(applied(model.item_tower, torch.cat([own, PRICE[row]]))))
    for row in range(3):
        for other in range(3):
            score = users[row] @ items[other] / 0.5
            if row != other:
                score = score - shares[other].log() + shares[row].log()
            if row != other and ITEM[row, 0] == ITEM[other, 0]:
                score = torch.tensor(-math.inf)
            assert torch.allclose(found[row, other], score, atol=1e-5)


def test_in_evaluation_each_item_is_there_once() -> None:
    module = InBatchLogits(1.0).eval()
    users, items, ids = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([7, 8, 8, 8])
    found = module(users, items, ids)
    # Of the item 8 the first is left for row 0, and each of the others has its own.
    assert found.isfinite().tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [True, False, True, False],
        [True, False, False, True],
    ]


def test_leaving_the_diagonal_alone_gives_the_same_loss_as_correcting_all() -> None:
    module = InBatchLogits(1.0)
    users, items, ids = torch.randn(4, 3), torch.randn(4, 3), torch.tensor([1, 2, 3, 4])
    shares = torch.tensor([0.4, 0.3, 0.2, 0.1])
    right = torch.arange(4)
    found = cross_entropy(module(users, items, ids, shares), right)
    assert torch.allclose(found, cross_entropy(users @ items.T - shares.log(), right))


def test_in_evaluation_scores_are_not_corrected_and_nothing_is_counted() -> None:
    model = small().eval()
    found = model(USER, ITEM, item_dense=PRICE, item_probability=torch.tensor([0.2, 0.1, 0.2]))
    products = model.user_vectors(USER) @ model.item_vectors(ITEM, PRICE).T / 0.5
    assert torch.allclose(found[0, 1], products[0, 1])
    assert torch.allclose(found.diagonal(), products.diagonal())
    assert not any(buffer.any() for buffer in model.buffers())


def test_in_training_items_are_counted_as_they_pass() -> None:
    model = small()
    model(USER, ITEM, item_dense=PRICE)
    assert model.logits.frequency is not None
    shares = model.logits.frequency(torch.tensor([7, 8, 9]))
    assert torch.allclose(shares, torch.tensor([2 / 3, 1 / 3, 0.0]))


def test_without_correction_there_is_no_estimate() -> None:
    model = TwoTower(correct=False)
    assert list(model.buffers()) == []


def test_each_side_has_its_table() -> None:
    assert sorted(spec.name for spec in tables_of(TwoTower())) == ["item", "user"]


def test_training_lowers_the_loss() -> None:
    model = TwoTower(1, 2, 4, (8,), 8, temperature=0.2)
    before, after = train(model, lambda: cross_entropy(model(USER, ITEM), torch.arange(3)))
    assert after < 0.8 * before


def test_a_batch_of_one_row_has_no_loss() -> None:
    model = small()
    found = model(USER[:1], ITEM[:1], item_dense=PRICE[:1])
    assert cross_entropy(found, torch.zeros(1, dtype=torch.int64)).item() == 0.0


def test_the_first_field_says_which_item_it_is() -> None:
    assert one_id(ITEM, "item").tolist() == [7, 8, 7]
    bags = stack([from_lists([[7], [8]]), from_lists([[], [1, 2]])])
    assert one_id(bags, "item").tolist() == [7, 8]
    with pytest.raises(DataError, match="row 1 of the batch has 0 ids in the first field"):
        one_id(stack([from_lists([[7], []]), from_lists([[1], [1]])]), "item")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match="temperature=0"):
        TwoTower(temperature=0.0)
    with pytest.raises(DataError, match="probability 0 in row 1"):
        small()(USER, ITEM, item_dense=PRICE, item_probability=torch.tensor([0.1, 0.0, 0.1]))
    with pytest.raises(ModelError, match=r"item_dense: the model was made for 1 dense column"):
        small()(USER, ITEM)
