from pathlib import Path

from flambeau.clusters.out_of_memory import COUNTERS, OutOfMemoryKills


def write(path: Path, kills: int) -> Path:
    path.write_text(f"nr_free_pages 12\noom_kill {kills}\ndrop_pagecache 3\n")
    return path


def test_only_new_kills_are_reported_and_only_once(tmp_path: Path) -> None:
    kills = OutOfMemoryKills(write(tmp_path / "vmstat", 4))
    assert not kills.new()
    write(tmp_path / "vmstat", 5)
    assert kills.new()
    assert not kills.new()


def test_a_system_without_the_counter_reports_none(tmp_path: Path) -> None:
    assert not OutOfMemoryKills(tmp_path / "none").new()


def test_this_kernels_counter_can_be_read() -> None:
    assert not COUNTERS.exists() or "oom_kill " in COUNTERS.read_text()
