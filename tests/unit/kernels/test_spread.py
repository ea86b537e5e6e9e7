"""Large batches on several cores."""

import os
import threading

import numpy as np
import pytest

from flambeau.kernels import cores
from flambeau.kernels.cores import PART_ROWS, spread


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: [0, 1, 2])


@pytest.mark.parametrize("size", [0, 1, PART_ROWS, 2 * PART_ROWS, 5 * PART_ROWS + 3])
def test_every_item_has_its_turn_once(size: int) -> None:
    turns = np.zeros(size, np.int64)

    def work(part: slice) -> None:
        turns[part] += 1

    spread(work, size)
    assert (turns == 1).all()


def test_several_threads_work_at_once() -> None:
    both_here = threading.Barrier(2)
    spread(lambda part: both_here.wait(timeout=60) and None, 2 * PART_ROWS)


def test_small_batches_stay_in_their_thread() -> None:
    seen = []
    spread(lambda part: seen.append((part, threading.get_ident())), 2 * PART_ROWS - 1)
    assert seen == [(slice(0, 2 * PART_ROWS - 1), threading.get_ident())]


def test_the_error_of_another_thread_reaches_the_caller() -> None:
    caller, both_here = threading.get_ident(), threading.Barrier(2)

    def work(part: slice) -> None:
        both_here.wait(timeout=60)
        if threading.get_ident() != caller:
            raise MemoryError("no more")

    with pytest.raises(MemoryError, match="no more"):
        spread(work, 2 * PART_ROWS)


def test_a_fork_has_threads_of_its_own() -> None:
    spread(lambda part: None, 4 * PART_ROWS)
    child = os.fork()
    if child == 0:
        # A fork that waited for its parent's threads would wait for ever.
        threading.Timer(60, os._exit, (1,)).start()
        both_here = threading.Barrier(2)
        spread(lambda part: both_here.wait(timeout=60) and None, 2 * PART_ROWS)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
