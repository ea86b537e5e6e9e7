"""Bits of rows against a plain set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flambeau.tables.index.bits import RowBits

rows = st.lists(st.integers(0, 300), max_size=40)


def as_rows(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(st.booleans(), rows), max_size=8))
def test_they_behave_like_a_set(operations: list[tuple[bool, list[int]]]) -> None:
    bits, model = RowBits(), set[int]()
    bits.cover(301)
    for setting, batch in operations:
        if setting:
            fresh = [i for i, row in enumerate(batch) if row not in {*model, *batch[:i]}]
            assert bits.claim(as_rows(batch)).tolist() == fresh
            model.update(batch)
        else:
            bits.clear(as_rows(batch))
            model.difference_update(batch)
        assert bits.count() == len(model)


def test_a_row_without_a_bit_counts_as_set() -> None:
    bits = RowBits(64)
    assert bits.claim(as_rows([63, 64, 10**6])).tolist() == [0]


def test_growing_keeps_what_is_set() -> None:
    bits = RowBits(10)
    bits.claim(as_rows([3]))
    bits.cover(10_000)
    assert bits.claim(as_rows([3, 9_999])).tolist() == [1]


def test_the_opposite_is_a_copy() -> None:
    bits = RowBits(64)
    bits.claim(as_rows([1]))
    opposite = bits.inverted()
    bits.claim(as_rows([2]))
    assert opposite.claim(as_rows([0, 1, 2])).tolist() == [1]


def test_adding_sets_the_bits_of_both() -> None:
    one, other = RowBits(64), RowBits(640)
    one.claim(as_rows([1, 2]))
    other.claim(as_rows([2, 600]))
    one.add(other)
    assert one.count() == 3


def test_full_words_are_counted() -> None:
    bits = RowBits(640)
    bits.claim(np.arange(640))
    assert bits.count() == 640
