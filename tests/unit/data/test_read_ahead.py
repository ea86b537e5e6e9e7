import threading
from collections.abc import Iterator

import pytest

from flambeau.data.read_ahead import ReadAhead


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_items_come_in_order_and_end() -> None:
    assert list(ReadAhead(iter(range(20)), depth=2)) == list(range(20))


def test_after_the_end_it_stays_ended() -> None:
    items = ReadAhead(iter([1]), depth=2)
    assert list(items) == [1]
    assert list(items) == []


def test_an_error_comes_after_what_was_read_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    items = ReadAhead(broken(), depth=4)
    assert next(items) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="disk"):
            next(items)


def test_it_reads_no_further_ahead_than_its_depth() -> None:
    read: list[int] = []
    third = threading.Event()

    def source() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            if number == 2:
                third.set()
            yield number

    items = ReadAhead(source(), depth=2)
    assert third.wait(10)
    assert read == [0, 1, 2]  # two wait in the queue, one in the thread's hand
    items.close()


def test_closing_early_ends_the_thread_and_the_source() -> None:
    ended = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    items = ReadAhead(endless(), depth=2)
    next(items)
    items.close()
    assert ended.is_set()
    assert "flambeau-loader" not in names()


def test_closing_twice_or_after_the_end_is_fine() -> None:
    items = ReadAhead(iter([1, 2]), depth=1)
    list(items)
    items.close()
    items.close()
