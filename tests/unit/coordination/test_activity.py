"""What a thread is doing, as another one sees it."""

import threading
from collections.abc import Callable

import pytest

from flambeau.coordination.activity import Doing, doing_of, stores, waits_for_others


@waits_for_others
def exchange(inner: Callable[[], None]) -> None:
    inner()


@stores
def save(inner: Callable[[], None]) -> None:
    inner()


def plain(inner: Callable[[], None]) -> None:
    inner()


@pytest.mark.parametrize(
    ("outer", "inner", "doing"),
    [
        (plain, plain, Doing.WORKING),
        (plain, exchange, Doing.WAITING),
        (exchange, plain, Doing.WAITING),
        (save, plain, Doing.STORING),
        (save, exchange, Doing.WAITING),
    ],
)
def test_the_innermost_marked_function_says_what_a_thread_is_doing(
    outer: Callable[..., None], inner: Callable[..., None], doing: Doing
) -> None:
    there, leave = threading.Event(), threading.Event()

    def stay() -> None:
        there.set()
        leave.wait(20)

    thread = threading.Thread(target=lambda: outer(lambda: inner(stay)))
    thread.start()
    assert there.wait(20)
    assert thread.ident is not None
    assert doing_of(thread.ident) is doing
    leave.set()
    thread.join()


def test_a_thread_that_has_ended_waits_for_nothing() -> None:
    assert doing_of(0) is Doing.WORKING
