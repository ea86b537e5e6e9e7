import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flambeau.data import jagged
from flambeau.data.batch import Batch, concatenate
from flambeau.data.jagged import Jagged, from_lists
from flambeau.errors import DataError, ModelError

BAGS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), min_size=1, max_size=8)


def lists(column: Jagged) -> list[list[int]]:
    """The bags as lists."""
    ends = column.offsets.tolist()
    return [column.ids[a:b].tolist() for a, b in itertools.pairwise(ends)]


@given(BAGS, st.data())
def test_rows_are_sliced_taken_and_concatenated_as_lists_are(bags, data):
    column = from_lists(bags)
    start = data.draw(st.integers(0, len(bags)))
    stop = data.draw(st.integers(start, len(bags) + 2))
    assert lists(column.slice(start, stop)) == bags[start:stop]
    order = data.draw(st.lists(st.integers(0, len(bags) - 1), max_size=6))
    taken = column.take(torch.tensor(order, dtype=torch.int64))
    assert lists(taken) == [bags[place] for place in order]
    assert lists(jagged.concatenate([column, taken])) == bags + [bags[place] for place in order]


def test_values_and_fields_go_along():
    column = Jagged(
        torch.tensor([5, 6, 7]),
        torch.tensor([0, 2, 3]),
        torch.tensor([0.5, 0.6, 0.7]),
        torch.tensor([1, 0, 1]),
    )
    second = column.take(torch.tensor([1, 0]))
    assert second.ids.tolist() == [7, 5, 6]
    assert torch.equal(second.values, torch.tensor([0.7, 0.5, 0.6]))
    assert second.fields.tolist() == [1, 1, 0]
    assert second.rows.tolist() == [0, 1, 1]


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=6))
def test_ids_are_grouped_by_field(fields):
    flat = [field for row in fields for field in row]
    ids = torch.arange(len(flat))
    lengths = torch.tensor([0, *[len(row) for row in fields]])
    column = Jagged(ids, lengths.cumsum(0), ids.float(), torch.tensor(flat, dtype=torch.int64))
    grouped = column.by_field(4)
    expected, first = [], 0
    for row in fields:
        own = list(zip(range(first, first + len(row)), row, strict=True))
        expected += [[number for number, found in own if found == field] for field in range(4)]
        first += len(row)
    assert lists(grouped) == expected
    assert grouped.width == 4
    assert torch.equal(grouped.values, grouped.ids.float())


def test_a_field_that_the_model_does_not_have_is_named():
    column = Jagged(torch.tensor([1]), torch.tensor([0, 1]), None, torch.tensor([4]))
    with pytest.raises(DataError, match="fields go from 4 to 4; the model has 3"):
        column.by_field(3)


def test_rows_of_as_many_ids_as_fields_are_bags_of_one():
    column = from_lists([[1, 2], [3, 4]])
    each = column.each(2)
    assert lists(each) == [[1], [2], [3], [4]]
    assert len(each) == 2
    with pytest.raises(DataError, match="row 1 of the batch has 1 id, not one for each of 2"):
        from_lists([[1, 2], [3]]).each(2)


def test_rows_can_be_made_dense():
    column = from_lists([[0, 2, 2], []], [[1.0, 2.0, 3.0], []])
    assert column.dense(3).tolist() == [[1, 0, 5], [0, 0, 0]]
    with pytest.raises(DataError, match="ids go from 0 to 2; a dense row has places 0 to 1"):
        column.dense(2)


def test_columns_are_stacked_bag_by_bag():
    several, one = from_lists([[1, 2], []], [[0.5, 0.25], []]), torch.tensor([[7, 8], [9, 10]])
    both = jagged.stack([several, one])
    assert both.width == 3
    assert lists(both) == [[1, 2], [7], [8], [], [9], [10]]
    assert both.values.tolist() == [0.5, 0.25, 1, 1, 1, 1]
    assert jagged.stack([several.plain(), one]).values is None


def test_batches_hold_jagged_columns():
    batch = Batch({"bags": from_lists([[1], [2, 3], []]), "x": torch.arange(3)}, 3)
    part = batch.slice(1, 3)
    assert lists(part["bags"]) == [[2, 3], []]
    assert lists(concatenate([part, batch])["bags"]) == [[2, 3], [], [1], [2, 3], []]
    assert lists(batch.take(torch.tensor([2, 1]))["bags"]) == [[], [2, 3]]
    assert batch.to(torch.device("meta"))["bags"].ids.device.type == "meta"


def test_list_columns_of_equal_length_join_those_of_different_length():
    equal = Batch({"bags": torch.tensor([[1, 2], [3, 4]])}, 2)
    longer = Batch({"bags": torch.tensor([[5, 6, 7]])}, 1)
    joined = concatenate([equal, Batch({"bags": from_lists([[], [9]])}, 2), longer])["bags"]
    assert lists(joined) == [[1, 2], [3, 4], [], [9], [5, 6, 7]]
    assert isinstance(concatenate([equal, equal])["bags"], torch.Tensor)


def test_stacked_columns_join_those_in_which_ids_are_missing():
    whole = torch.tensor([[1, 2], [3, 4]])
    gaps = jagged.with_gaps(torch.tensor([[5, 6], [7, 8]]), missing=7)
    joined = concatenate([Batch({"ids": whole}, 2), Batch({"ids": gaps}, 2)])["ids"]
    assert joined.width == 2
    assert joined.in_places(0).tolist() == [[1, 2], [3, 4], [5, 6], [0, 8]]
    assert joined.take(torch.tensor([3, 0])).in_places(0).tolist() == [[0, 8], [1, 2]]


def test_torch_says_what_it_was_given():
    column = from_lists([[1], [2, 3]])
    with pytest.raises(ModelError, match="embedding was given a jagged column"):
        torch.nn.functional.embedding(column, torch.ones(4, 2))
    with pytest.raises(ModelError, match="pass it to a SparseEmbedding"):
        torch.ones(2) + column
    assert np.asarray(column.ids).tolist() == [1, 2, 3]
