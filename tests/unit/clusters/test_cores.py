import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.clusters import cores
from flambeau.clusters.cores import core_quota, plan_cores, split_cores


@given(st.integers(1, 128), st.integers(1, 128))
def test_workers_get_disjoint_contiguous_cores_and_none_is_left(count: int, workers: int) -> None:
    sets = split_cores(range(count), workers)
    if workers > count:
        assert sets is None
        return
    assert sets is not None
    assert len(sets) == workers
    assert list(itertools.chain(*sets)) == list(range(count))
    sizes = [len(cores) for cores in sets]
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(cores, "usable_cores", lambda: [2, 3, 6, 7])
    monkeypatch.setattr(cores, "core_quota", lambda: None)
    return monkeypatch


def test_a_worker_gets_as_many_threads_as_cores(machine: pytest.MonkeyPatch) -> None:
    assert plan_cores(2, None) == [([2, 3], 2), ([6, 7], 2)]


def test_threads_can_be_asked_for(machine: pytest.MonkeyPatch) -> None:
    assert plan_cores(2, 5) == [([2, 3], 5), ([6, 7], 5)]


def test_more_workers_than_cores_are_not_pinned_and_get_one_thread(
    machine: pytest.MonkeyPatch,
) -> None:
    assert plan_cores(5, None) == [([], 1)] * 5


def test_under_a_quota_nothing_is_pinned_and_threads_share_the_quota(
    machine: pytest.MonkeyPatch,
) -> None:
    machine.setattr(cores, "core_quota", lambda: 3)
    assert plan_cores(1, None) == [([], 3)]
    assert plan_cores(2, None) == [([], 1)] * 2


def test_a_quota_above_the_cores_changes_nothing(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(cores, "core_quota", lambda: 16)
    assert plan_cores(1, None) == [([2, 3, 6, 7], 4)]


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("250000 100000\n", 3), ("50000 100000\n", 1), ("200000 100000\n", 2)],
)
def test_the_quota_of_a_container_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, quota: int | None
) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    monkeypatch.setattr(cores, "_CPU_MAX", path)
    assert core_quota() == quota


def test_without_a_container_there_is_no_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_CPU_MAX", tmp_path / "missing")
    assert core_quota() is None
