"""Horovod's interface among real ranks: many checks in each group, as starting ranks takes long."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as fb

CHECKS = Path(__file__).with_name("horovod_checks.py")


def start(work: Path, size: int, *names: str, **environment: str) -> list[subprocess.Popen[str]]:
    """Start ranks as Horovod's launcher does."""
    return [start_rank(work, rank, size, *names, **environment) for rank in range(size)]


def start_rank(
    work: Path, rank: int, size: int, *names: str, **environment: str
) -> subprocess.Popen[str]:
    given = {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(CHECKS), *names],
        cwd=work,
        env={**os.environ, **given, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Return exit codes and what was printed, by rank."""
    try:
        shown = [each.communicate(timeout=200)[0] for each in processes]
    finally:
        for each in processes:
            each.kill()
            each.wait()
    return [(each.returncode, text) for each, text in zip(processes, shown, strict=True)]


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_agree(size: int, tmp_path: Path) -> None:
    for code, shown in finish(start(tmp_path, size)):
        assert code == 0, shown


def test_a_killed_rank_is_an_error_of_the_others(tmp_path: Path) -> None:
    first, second, third = finish(start(tmp_path, 3, "lose_a_rank"))
    assert second[0] == -signal.SIGKILL
    assert first[0] == 0, first[1]
    assert third[0] == 0, third[1]


def test_a_rank_that_is_started_again_rejoins(tmp_path: Path) -> None:
    lost, second = start(tmp_path, 2, "elastic")
    shown = lost.communicate(timeout=200)[0]
    assert lost.returncode == -signal.SIGKILL, shown
    for code, shown in finish([start_rank(tmp_path, 0, 2, "elastic"), second]):
        assert code == 0, shown


def test_a_stall_is_reported_with_names_and_ranks(tmp_path: Path) -> None:
    ranks = start(tmp_path, 2, "stall", HOROVOD_STALL_CHECK_TIME_SECONDS="0.5")
    assert ranks[0].stdout is not None
    lines = [ranks[0].stdout.readline() for _ in range(2)]
    assert ranks[1].stdin is not None
    ranks[1].stdin.write("continue\n")
    ranks[1].stdin.flush()
    assert "waited for more than" in lines[0]
    assert lines[1].strip() == "allreduce.awaited: missing on ranks [1]"
    for code, shown in finish(ranks):
        assert code == 0, shown


DIGITS = Path(__file__).with_name("horovod_digits.py")


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize(
    "command",
    [
        ["run", "-n", "2", "--alias", "horovod", str(DIGITS), "--fp16-allreduce"],
        ["horovodrun", "-np", "2", "-H", "localhost:2", "python", str(DIGITS), "--lr", "0.05"],
    ],
    ids=["run", "horovodrun"],
)
def test_a_script_of_horovods_runs_unchanged(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", *command],
        cwd=tmp_path,
        env={**os.environ, "HOROVOD_TIMELINE": "timeline.json"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    shown = re.search(r"ranks 2 equal True accuracy (\S+)", done.stdout + done.stderr)
    assert shown is not None, done.stdout + done.stderr
    assert float(shown[1]) > 0.85
    assert "Warning" not in done.stdout + done.stderr
    # The script ends without hvd.shutdown().
    events = json.loads((tmp_path / "timeline.json").read_text())
    assert any(each.get("args") == {"name": "broadcast.parameters.fc1.bias"} for each in events)


def _sum_of_ranks() -> float:
    import torch

    import flambeau.compat.horovod as hvd

    found = []
    for _ in range(2):
        hvd.init()
        found.append(hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum).item())
        hvd.shutdown()
    assert found[0] == found[1]
    return found[0]


def test_functions_of_fb_run_can_use_it() -> None:
    assert fb.run(_sum_of_ranks, cluster=fb.Local(2)) == [3.0, 3.0]
