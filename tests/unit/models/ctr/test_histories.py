import itertools

import pytest
import torch
from in_process import ready
from torch import nn

from flambeau.config.tables import TableSpec
from flambeau.data.jagged import from_lists, stack
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.history import HistoryEmbedding, ItemEmbedding, newest, without

ITEMS = TableSpec("item", 3)


def lists(bags: torch.Tensor, offsets: torch.Tensor) -> list[list[int]]:
    bounds = offsets.tolist()
    return [bags.tolist()[a:b] for a, b in itertools.pairwise(bounds)]


def test_only_the_newest_items_are_kept() -> None:
    kept = newest(from_lists([[1, 2, 3], [], [4], [5, 6]]), 2)
    assert lists(kept.ids, kept.offsets) == [[2, 3], [], [4], [5, 6]]


@pytest.mark.parametrize("bags", [[[1, 2, 3], [], [4], [5, 6]], [[], []], [[1]]])
def test_rows_that_are_given_are_cut_as_items_are(bags: list[list[int]]) -> None:
    history = HistoryEmbedding(ITEMS, length=2)
    tables = ready(history)
    history(from_lists([[*range(9)], [], []]))[0].sum().backward()
    history(from_lists([[3, 4], [5, 6], [1, 2]]))[0].sum().backward()
    tables.step()  # now there are rows to be seen
    rows, mask = history(from_lists(bags))
    history.rows = nn.Sequential(history.rows)  # as in an export, no look-up of its own
    seen, there = history(from_lists(bags))
    assert seen.shape == (len(bags), 2, 3)
    longest = mask.shape[1]
    assert torch.equal(seen[:, :longest], rows)
    assert torch.equal(there[:, :longest], mask)
    assert not seen[:, longest:].any()
    assert not there[:, longest:].any()


def test_prediction_looks_up_no_more_than_training(monkeypatch: pytest.MonkeyPatch) -> None:
    history = HistoryEmbedding(ITEMS, length=2).eval()
    seen: list[int] = []
    found = history.rows.forward
    monkeypatch.setattr(
        history.rows, "forward", lambda b: (seen.extend(b.ids.tolist()), found(b))[1]
    )
    history(from_lists([[1, 2, 3], [4]]))
    assert seen == [2, 3, 4]


def test_padding_is_taken_out_wherever_it_is() -> None:
    kept = without(from_lists([[0, 0, 1], [0], [2, 0, 3]]), 0)
    assert lists(kept.ids, kept.offsets) == [[1], [], [2, 3]]


def test_a_tensor_with_padding_is_as_good_as_a_jagged() -> None:
    history = HistoryEmbedding(ITEMS, padding=0)
    ready(history)
    jagged = history(from_lists([[7, 8], [], [9]]))
    padded = history(torch.tensor([[0, 7, 8], [0, 0, 0], [9, 0, 0]]))
    assert all(torch.equal(a, b) for a, b in zip(jagged, padded, strict=True))


def test_a_column_of_one_item_each_is_a_history_of_one() -> None:
    history = HistoryEmbedding(ITEMS)
    ready(history)
    rows, mask = history(torch.tensor([4, 5]))
    assert rows.shape == (2, 1, 3)
    assert mask.all()


def test_items_may_be_missing_or_several_candidates() -> None:
    item = ItemEmbedding(ITEMS)
    ready(item)
    rows = item(torch.tensor([[4, 5], [6, 4]]))
    assert rows.shape == (2, 2, 3)
    some = item(from_lists([[4], []]))
    assert torch.equal(some[0], rows[0, 0])
    assert torch.equal(some[1], torch.zeros(3))


def test_what_is_no_history_is_refused() -> None:
    history = HistoryEmbedding(ITEMS)
    with pytest.raises(ModelError, match="a row has 2 histories"):
        history(stack([torch.tensor([[1, 2]])]))
    with pytest.raises(ModelError, match="length=0"):
        HistoryEmbedding(ITEMS, length=0)
