from pathlib import Path

import pytest

from flambeau.clusters import control_groups
from flambeau.clusters.control_groups import core_quota, count_cores, memory_limits


def group(root: Path, line: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"{line}\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000", None), ("250000 100000", 2.5), ("50000 100000", 0.5)]
)
def test_the_quota_of_a_container_is_read(tmp_path: Path, text: str, quota: float | None) -> None:
    assert core_quota(group(tmp_path, "0::/", {"cpu.max": text})) == quota


def test_the_lowest_quota_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    files = {"job/step/cpu.max": "max 100000", "job/cpu.max": "200000 100000"}
    assert core_quota(group(tmp_path, "0::/job/step", files)) == 2


def test_the_first_version_of_control_groups_has_quotas_too(tmp_path: Path) -> None:
    files = {"cpu/job/cpu.cfs_quota_us": "150000", "cpu/job/cpu.cfs_period_us": "100000"}
    assert core_quota(group(tmp_path, "3:cpu:/job", files)) == 1.5


def test_a_quota_of_minus_one_is_none(tmp_path: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    assert core_quota(group(tmp_path, "3:cpu:/", files)) is None


def test_limits_of_memory_are_read(tmp_path: Path) -> None:
    files = {"job/memory.max": "1000", "memory.max": "max"}
    assert list(memory_limits(group(tmp_path, "0::/job", files))) == [1000]


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert core_quota(tmp_path) is None
    assert list(memory_limits(tmp_path)) == []


@pytest.mark.parametrize(("quota", "count"), [(None, 4), (0.5, 1), (2.5, 3), (16, 4)])
def test_cores_that_can_be_kept_busy(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, count: int
) -> None:
    monkeypatch.setattr(control_groups, "usable_cores", lambda: [2, 3, 6, 7])
    monkeypatch.setattr(control_groups, "core_quota", lambda: quota)
    assert count_cores() == count
