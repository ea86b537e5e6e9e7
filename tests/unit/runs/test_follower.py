"""A follower evaluates what is sound, and leaves a run as the job would have."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flambeau.checkpoint import RunDirectory, checkpoints, lease, prune
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.checkpoint.store import DENSE
from flambeau.config import Binding, FileData
from flambeau.runs.follower import Follower
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import History, add_checkpoint, write_run

Reports = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that has ended, with five checkpoints, as its log says."""
    torch.manual_seed(0)
    run = write_run(tmp_path, "History")
    for step in range(2, 6):
        add_checkpoint(run, History(), {}, step)
    events = [{"kind": "checkpoint", "time": 0.0, "step": step} for step in range(1, 6)]
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


def follower(run: RunDirectory, reports: Reports) -> Follower:
    valid = FileData(path=str(run.path.parent / "clicks.parquet"))
    binding = Binding(label={"click": "label", "buy": "label"})
    changes = {"valid": valid, "binding": binding, "metrics": ()}
    settings = read_settings(run).model_copy(update=changes)
    return Follower(run, settings, lambda kind, **fields: reports.append((kind, fields)), own=False)


def follow(run: RunDirectory) -> Reports:
    reports: Reports = []
    follower(run, reports).follow(lambda _: True)
    return reports


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def evaluated(reports: Reports) -> list[int]:
    return [fields["step"] for kind, fields in reports if kind == "evaluation"]


def warnings(reports: Reports) -> list[str]:
    return [fields["text"] for kind, fields in reports if kind == "warning"]


@pytest.mark.parametrize("pattern", [DENSE, "table-*"])
def test_a_damaged_checkpoint_is_skipped_and_named_at_the_end(
    run: RunDirectory, pattern: str
) -> None:
    damaged = run.checkpoints / "step-00000002"
    (file,) = damaged.glob(pattern)
    flip(file)
    reports = follow(run)
    assert evaluated(reports) == [1, 3, 4, 5]
    at_once, at_the_end = warnings(reports)
    assert at_once.startswith(f"skipped the checkpoint step-00000002: {file} is corrupt")
    assert at_the_end == "not evaluated, because they are damaged: step-00000002"
    assert [kind for kind, _ in reports[:3]] == ["evaluation", "warning", "evaluation"]
    assert not list(run.checkpoints.glob("*/lease-*"))


def test_a_checkpoint_with_a_damaged_manifest_is_named_as_damaged(run: RunDirectory) -> None:
    flip(run.checkpoints / "step-00000004" / MANIFEST)
    reports = follow(run)
    assert evaluated(reports) == [1, 2, 3, 5]
    assert warnings(reports) == ["not evaluated, because they are damaged: step-00000004"]


def test_what_was_removed_before_it_could_be_read_is_named(run: RunDirectory) -> None:
    prune(run, keep=3)
    (warning,) = warnings(follow(run))
    assert "removed too early: step-00000001, step-00000002; raise checkpoints.keep" in warning


def names(run: RunDirectory) -> list[str]:
    return [path.name for path in checkpoints(run)]


def test_surplus_checkpoints_go_when_the_follower_of_an_ended_run_does(run: RunDirectory) -> None:
    unfinished = run.checkpoints / "step-00000006"
    unfinished.mkdir()  # a job may have just begun it
    assert evaluated(follow(run)) == [1, 2, 3, 4, 5]
    assert names(run) == ["step-00000003", "step-00000004", "step-00000005"]
    assert unfinished.is_dir()


def test_surplus_checkpoints_go_also_when_the_follower_is_interrupted(run: RunDirectory) -> None:
    def interrupted(seconds: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follower(run, []).follow(interrupted)
    assert len(names(run)) == 3


@pytest.mark.parametrize("user", ["job", "reader"])
def test_what_others_use_is_not_removed(run: RunDirectory, user: str) -> None:
    first = run.checkpoints / "step-00000001"
    use: dict[str, Callable[[], Any]] = {"job": run.lock, "reader": lambda: lease(first)}
    with use[user]():
        follow(run)
        assert first.name in names(run)
    assert (len(names(run)) == 5) == (user == "job")
