import itertools

import pytest

from flambeau.coordination.consistency import (
    Asynchronous,
    Bounded,
    Synchronous,
)
from flambeau.errors import ConfigError


@pytest.mark.parametrize(("workers", "backup"), [(1, 0), (4, 0), (4, 1), (4, 3)])
def test_a_round_waits_for_all_but_the_backup_workers(workers: int, backup: int) -> None:
    policy = Synchronous(workers, backup)
    for count in range(workers + 1):
        for arrived in map(frozenset, itertools.combinations(range(workers), count)):
            expected = arrived if count >= workers - backup else None
            assert policy.members(arrived) == expected


@pytest.mark.parametrize(("workers", "backup"), [(1, 1), (4, 4), (4, 9), (4, -1)])
def test_backup_workers_must_leave_a_member(workers: int, backup: int) -> None:
    with pytest.raises(ConfigError, match=f"backup_workers={backup} with {workers} worker"):
        Synchronous(workers, backup)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_bounded_workers_start_up_to_the_staleness_ahead(staleness: int) -> None:
    policy = Bounded(staleness)
    assert policy.may_start(7 + staleness, slowest=7)
    assert not policy.may_start(8 + staleness, slowest=7)


def test_a_negative_staleness_is_refused() -> None:
    with pytest.raises(ConfigError, match="staleness=-1"):
        Bounded(-1)


def test_asynchronous_workers_never_wait() -> None:
    assert Asynchronous().may_start(10**9, slowest=0)
