import random

import pytest

from flambeau.coordination.clocks import Clocks
from flambeau.coordination.consistency import Bounded


@pytest.fixture
def clocks() -> Clocks:
    pair = Clocks()
    pair.join(0)
    pair.join(1)
    return pair


def test_the_floor_is_the_least_clock(clocks: Clocks) -> None:
    changes = [clocks.tick(worker) for worker in (0, 0, 1)]
    assert changes == [False, False, True]
    assert (clocks.slowest, clocks[0], clocks[1]) == (1, 2, 1)


def test_who_joins_starts_at_the_floor(clocks: Clocks) -> None:
    for worker in (0, 0, 1):
        clocks.tick(worker)
    assert not clocks.join(2)
    assert clocks[2] == clocks.slowest == 1


def test_joining_again_keeps_the_clock(clocks: Clocks) -> None:
    clocks.tick(0)
    clocks.join(0)
    assert clocks[0] == 1


def test_nobody_waits_for_who_has_left(clocks: Clocks) -> None:
    clocks.tick(0)
    assert clocks.leave(1)
    assert clocks.slowest == 1
    assert 1 not in clocks


def test_the_floor_stays_when_the_last_one_leaves(clocks: Clocks) -> None:
    clocks.leave(1)
    clocks.tick(0)
    assert not clocks.leave(0)
    assert clocks.slowest == 1


def test_the_tick_of_one_that_has_left_counts_for_nothing(clocks: Clocks) -> None:
    clocks.leave(1)
    assert not clocks.tick(1)
    assert 1 not in clocks
    assert not clocks.leave(1)


def test_clocks_go_on_from_a_given_floor() -> None:
    clocks = Clocks(slowest=40)
    clocks.join(5)
    assert clocks[5] == 40


def run_free(seed: int) -> None:
    """Workers of random speed that come and go, and start batches as the policy lets them."""
    chance = random.Random(seed)
    count, staleness = chance.randint(1, 6), chance.randint(0, 3)
    clocks, policy = Clocks(), Bounded(staleness)
    speeds = [chance.choice([0.1, 1.0, 5.0]) for _ in range(count)]
    running: set[int] = set()
    for worker in range(count):
        clocks.join(worker)
    for _ in range(100):
        slowest = clocks.slowest
        (worker,) = chance.choices(range(count), speeds)
        if chance.random() < 0.03:
            running.discard(worker)
            changed = clocks.leave(worker) if worker in clocks else clocks.join(worker)
        elif worker in running:
            running.discard(worker)
            changed = clocks.tick(worker)
        else:
            if worker in clocks and policy.may_start(clocks[worker], clocks.slowest):
                running.add(worker)
            changed = False
        active = {other: clocks[other] for other in range(count) if other in clocks}
        assert changed == (clocks.slowest != slowest)
        assert clocks.slowest >= slowest
        assert clocks.slowest == min(active.values(), default=clocks.slowest)
        assert all(clocks[other] - clocks.slowest <= staleness for other in running)
        may = [policy.may_start(clock, clocks.slowest) for clock in active.values()]
        assert any(may) or not active


def test_nobody_ever_trains_more_than_the_staleness_ahead_and_somebody_always_may_go_on() -> None:
    for seed in range(1000):
        run_free(seed)


def test_several_batches_count_as_one_after_the_other(clocks: Clocks) -> None:
    assert not clocks.tick(0, 3)
    assert clocks.tick(1, 2)
    assert (clocks.slowest, clocks[0], clocks[1]) == (2, 3, 2)
    assert not clocks.tick(1, 0)
