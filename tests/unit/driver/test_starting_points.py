"""What a job starts from: the newest checkpoint whose every byte is as it was written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flambeau.checkpoint import RunDirectory, prune
from flambeau.checkpoint.manifest import MANIFEST, FileEntry, TableEntry
from flambeau.checkpoint.references import checkpoint_path
from flambeau.checkpoint.retention import is_leased
from flambeau.checkpoint.store import TrainingState, take_snapshot, write_checkpoint, write_snapshot
from flambeau.checkpoint.tensor_file import write_tensors
from flambeau.driver.control.starting_points import StartingPoint, StartingPoints


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


@pytest.fixture
def points(run: RunDirectory) -> Iterator[StartingPoints]:
    points = StartingPoints(run, resumes=True)
    yield points
    points.close()


def state(step: int) -> TrainingState:
    return TrainingState(step, 0, 2, {"weight": torch.ones(8)}, {}, {})


def save(run: RunDirectory, step: int) -> Path:
    return write_checkpoint(run, state(step))


def save_with_table(run: RunDirectory, step: int, layers: list[list[str]]) -> Path:
    """A checkpoint with a file of rows, which adds to those of others."""
    directory = checkpoint_path(run, step)
    directory.mkdir()
    entry = write_tensors(directory / "table-item-0.safetensors", {"ids": torch.arange(step)})

    def others() -> tuple[dict[str, FileEntry], dict[str, TableEntry]]:
        table = TableEntry(spec={}, layers=[["table-item-0.safetensors"], *layers])
        return {"table-item-0.safetensors": entry}, {"item": table}

    return write_snapshot(run, take_snapshot(state(step)), others)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def chosen(points: StartingPoints, *, again: bool = False) -> StartingPoint:
    return points.choose(again=again).result(timeout=20)


def test_a_new_run_begins_with_nothing(run: RunDirectory) -> None:
    save(run, 1)
    points = StartingPoints(run, resumes=False)
    assert chosen(points) == StartingPoint(None)
    assert chosen(points, again=True).checkpoint == "step-00000001"
    points.close()


def test_a_job_without_a_run_begins_with_nothing() -> None:
    points = StartingPoints()
    assert chosen(points, again=True) == StartingPoint(None)
    assert not points.exist
    points.close()


def test_a_resumed_run_starts_from_the_newest(run: RunDirectory, points: StartingPoints) -> None:
    save(run, 1)
    newest = save(run, 2)
    assert chosen(points) == StartingPoint(newest.name)


def test_one_that_starts_again_takes_what_was_saved_meanwhile(
    run: RunDirectory, points: StartingPoints
) -> None:
    assert chosen(points, again=True) == StartingPoint(None)
    assert chosen(points, again=True).checkpoint != (saved := save(run, 3).name)
    assert chosen(points, again=True).checkpoint == saved


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
@pytest.mark.parametrize("name", ["dense.safetensors", "table-item-0.safetensors", MANIFEST])
def test_a_damaged_one_is_skipped_with_a_warning(
    run: RunDirectory, points: StartingPoints, damage: str, name: str
) -> None:
    whole = save(run, 1)
    file = save_with_table(run, 2, []) / name
    if damage == "flipped":
        flip(file)
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    point = chosen(points)
    assert point.checkpoint == whole.name
    (warning,) = point.skipped
    assert warning.startswith("skipped the checkpoint step-00000002: ")
    assert name in warning


def test_rows_in_another_checkpoint_are_read_as_well(
    run: RunDirectory, points: StartingPoints
) -> None:
    oldest = save(run, 1)
    base = save_with_table(run, 2, [])
    save_with_table(run, 3, [[f"../{base.name}/table-item-0.safetensors"]])
    assert chosen(points).checkpoint == "step-00000003"
    flip(base / "table-item-0.safetensors")
    point = chosen(points)
    assert point.checkpoint == oldest.name
    assert len(point.skipped) == 2


def test_one_that_is_being_written_is_no_damage(run: RunDirectory, points: StartingPoints) -> None:
    whole = save(run, 1)
    checkpoint_path(run, 2).mkdir()
    assert chosen(points, again=True) == StartingPoint(whole.name)


def test_what_was_chosen_is_leased_until_it_is_released(
    run: RunDirectory, points: StartingPoints
) -> None:
    first = checkpoint_path(run, 1)
    save(run, 1)
    chosen(points)
    for step in (2, 3):
        save(run, step)
    assert prune(run, keep=1) == [checkpoint_path(run, 2)]
    points.release()
    assert prune(run, keep=1) == [first]


def test_what_was_skipped_is_not_leased(run: RunDirectory, points: StartingPoints) -> None:
    save(run, 1)
    damaged = save(run, 2)
    flip(damaged / "dense.safetensors")
    chosen(points)
    assert not is_leased(damaged)


def test_a_lease_of_a_killed_driver_ends_with_the_next_start(run: RunDirectory) -> None:
    save(run, 1)
    killed = StartingPoints(run, resumes=True)
    chosen(killed)
    assert is_leased(checkpoint_path(run, 1))
    StartingPoints(run, resumes=True).close()
    assert not is_leased(checkpoint_path(run, 1))
    killed.close()
