from collections.abc import Iterator

import pytest

from flambeau.training.loop import Peeking


def test_the_items_are_those_of_the_iterator() -> None:
    assert list(Peeking(iter([1, 2, 3]))) == [1, 2, 3]


def test_what_was_seen_is_what_comes_next_and_nothing_is_lost() -> None:
    items = Peeking(iter("abc"))
    seen = []
    for item in items:
        seen.append((item, items.peek()))
    assert seen == [("a", "b"), ("b", "c"), ("c", None)]


def test_looking_twice_shows_the_same() -> None:
    items = Peeking(iter([1, 2]))
    assert [items.peek(), items.peek(), next(items)] == [1, 1, 1]


def test_at_the_end_there_is_nothing_to_see_and_nothing_to_take() -> None:
    items = Peeking(iter([1]))
    next(items)
    assert items.peek() is None
    with pytest.raises(StopIteration):
        next(items)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    read = []

    def source() -> Iterator[int]:
        for number in range(5):
            read.append(number)
            yield number

    items = Peeking(source())
    assert read == []
    items.peek()
    next(items)
    assert read == [0]
