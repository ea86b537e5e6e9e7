"""Checkpoints come back exactly, or not at all."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flambeau.checkpoint import RunDirectory, checkpoints, latest, store
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.checkpoint.store import (
    DENSE,
    STATE,
    TrainingState,
    make_room,
    read_checkpoint,
    write_checkpoint,
)
from flambeau.driver.control.starting_points import StartingPoints
from flambeau.errors import CheckpointError

MakeState = Callable[[int], TrainingState]


def silent(message: str) -> None:
    """A `warn` for where the warnings are not what is tested."""


def newest_readable(run: RunDirectory, warn: Callable[[str], None]) -> TrainingState | None:
    """The state that a resumed job starts from."""
    points = StartingPoints(run, resumes=True)
    point = points.choose(again=False).result()
    points.close()
    for text in point.skipped:
        warn(text)
    return None if point.checkpoint is None else read_checkpoint(run.checkpoints / point.checkpoint)


def assert_same(one: TrainingState, other: TrainingState) -> None:
    assert (one.step, one.epoch, one.workers) == (other.step, other.epoch, other.workers)
    assert one.metrics == other.metrics
    assert one.model.keys() == other.model.keys()
    assert all(torch.equal(one.model[name], other.model[name]) for name in one.model)
    assert torch.equal(one.extra["optimizer"][0], other.extra["optimizer"][0])
    assert one.extra["position"] == other.extra["position"]


def test_a_state_reads_back_equal(run: RunDirectory, make_state: MakeState) -> None:
    path = write_checkpoint(run, make_state(1000))
    assert path.name == "step-00001000"
    assert_same(read_checkpoint(path), make_state(1000))


def test_a_checkpoint_is_three_files(run: RunDirectory, make_state: MakeState) -> None:
    path = write_checkpoint(run, make_state(1))
    assert {file.name for file in path.iterdir()} == {DENSE, STATE, MANIFEST}


def test_tied_weights_keep_both_names(run: RunDirectory) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = TrainingState(step=1, epoch=0, workers=1, model=model.state_dict())
    back = read_checkpoint(write_checkpoint(run, state))
    assert torch.equal(back.model["0.weight"], model[0].weight)
    model.load_state_dict(back.model)
    assert model[1].weight is model[0].weight


def test_latest_follows(run: RunDirectory, make_state: MakeState) -> None:
    for step in (1, 2):
        write_checkpoint(run, make_state(step))
    assert latest(run) == {"step": 2, "metrics": make_state(2).metrics}


def test_checkpoints_are_in_the_order_of_steps(run: RunDirectory, make_state: MakeState) -> None:
    for step in (20, 3, 123_456_789):
        write_checkpoint(run, make_state(step))
    names = [path.name for path in checkpoints(run)]
    assert names == ["step-00000003", "step-00000020", "step-123456789"]


def test_the_same_step_is_replaced(run: RunDirectory, make_state: MakeState) -> None:
    write_checkpoint(run, make_state(5))
    again = make_state(6)
    again.step = 5
    assert_same(read_checkpoint(write_checkpoint(run, again)), again)


def test_what_a_crash_left_is_replaced(run: RunDirectory, make_state: MakeState) -> None:
    left = run.checkpoints / "step-00000005"
    left.mkdir()
    (left / "table-a-0.safetensors").write_bytes(b"half")
    path = write_checkpoint(run, make_state(5))
    assert path == left
    assert not (left / "table-a-0.safetensors").exists()


def test_without_checkpoints_there_is_none(run: RunDirectory) -> None:
    assert newest_readable(run, silent) is None


def test_a_weight_that_cannot_be_saved_is_named_before_writing(run: RunDirectory) -> None:
    model = {"weight": torch.eye(2).to_sparse()}
    with pytest.raises(CheckpointError, match="weight cannot be saved"):
        write_checkpoint(run, TrainingState(step=1, epoch=0, workers=1, model=model))
    assert not any(run.checkpoints.iterdir())


@pytest.mark.parametrize("name", [DENSE, STATE, MANIFEST])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_file_makes_the_previous_the_newest(
    run: RunDirectory, make_state: MakeState, name: str, kept: float
) -> None:
    write_checkpoint(run, make_state(1))
    file = write_checkpoint(run, make_state(2)) / name
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    warnings: list[str] = []
    state = newest_readable(run, warnings.append)
    assert state is not None
    assert_same(state, make_state(1))
    assert len(warnings) == 1
    assert name in warnings[0]


@pytest.mark.parametrize("name", [DENSE, STATE, MANIFEST])
def test_a_missing_file_makes_the_previous_the_newest(
    run: RunDirectory, make_state: MakeState, name: str
) -> None:
    write_checkpoint(run, make_state(1))
    (write_checkpoint(run, make_state(2)) / name).unlink()
    warnings: list[str] = []
    state = newest_readable(run, warnings.append)
    assert state is not None
    assert state.step == 1
    assert name in warnings[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_flipped_bit_never_gives_another_state(
    run: RunDirectory, make_state: MakeState, data: st.DataObject
) -> None:
    path = write_checkpoint(run, make_state(2))
    file = path / data.draw(st.sampled_from([DENSE, STATE, MANIFEST]))
    content = bytearray(file.read_bytes())
    place = int(data.draw(st.floats(0, 1, exclude_max=True)) * len(content))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    warnings: list[str] = []
    state = newest_readable(run, warnings.append)
    if state is None:
        assert file.name in warnings[0]
    else:
        # Between the values of the manifest there are spaces that say nothing.
        assert_same(state, make_state(2))


class FailingDisk:
    """Stands in for `os.fsync`, which ends every part of a commit, and fails at the n-th call."""

    def __init__(self, fail_at: int, error: OSError) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.error = error

    def __call__(self, descriptor: int) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise self.error

    @property
    def failed(self) -> bool:
        return self.calls >= self.fail_at


def commit_points(run: RunDirectory, state: TrainingState) -> int:
    """How many times a write can fail."""
    disk = FailingDisk(0, OSError())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk)
        write_checkpoint(run, state)
    return disk.calls


#: Both files, the directory of checkpoints, the manifest and its directory, latest.json and its.
COMMIT_POINTS = range(1, 8)


def test_the_points_of_a_commit(run: RunDirectory, make_state: MakeState) -> None:
    assert commit_points(run, make_state(1)) == COMMIT_POINTS[-1]


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_full_disk_leaves_nothing_and_names_the_last_checkpoint(
    run: RunDirectory, make_state: MakeState, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    before = write_checkpoint(run, make_state(1))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", FailingDisk(point, full))
    with pytest.raises(CheckpointError, match=r"no space left in .* step 2 .* step-00000001 is"):
        write_checkpoint(run, make_state(2))
    assert list(run.checkpoints.iterdir()) == [before]


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_crash_leaves_a_readable_checkpoint(
    run: RunDirectory, make_state: MakeState, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    write_checkpoint(run, make_state(1))
    disk = FailingDisk(point, OSError(errno.EIO, "the process is dead"))
    remove: Any = store.remove_checkpoint

    def remove_while_alive(path: Path) -> None:
        if not disk.failed:
            remove(path)

    monkeypatch.setattr(os, "fsync", disk)
    monkeypatch.setattr(store, "remove_checkpoint", remove_while_alive)
    with pytest.raises(CheckpointError):
        write_checkpoint(run, make_state(2))
    state = newest_readable(run, silent)
    assert state is not None
    # The complete manifest takes its name after point 4: that is the commit.
    assert_same(state, make_state(2 if point > 4 else 1))


def test_a_manifest_without_a_file_of_weights_is_incomplete(
    run: RunDirectory, make_state: MakeState
) -> None:
    path = write_checkpoint(run, make_state(1))
    manifest = store.Manifest.read(path)
    manifest.model_copy(update={"files": {DENSE: manifest.files[DENSE]}}).write(path)
    with pytest.raises(CheckpointError, match=f"lacks {STATE}"):
        read_checkpoint(path)


def test_the_manifest_has_the_size_of_each_file(run: RunDirectory, make_state: MakeState) -> None:
    path = write_checkpoint(run, make_state(1))
    files = json.loads((path / MANIFEST).read_text())["files"]
    sizes = {name: (path / name).stat().st_size for name in (DENSE, STATE)}
    assert {name: entry["size"] for name, entry in files.items()} == sizes


def test_there_is_room_for_a_checkpoint_where_there_was_none(run: RunDirectory) -> None:
    directory = make_room(run, 5)
    assert directory == run.checkpoints / "step-00000005"
    assert list(directory.iterdir()) == []
    assert checkpoints(run) == []


def test_room_is_made_in_place_of_a_checkpoint_of_the_same_step_only(
    run: RunDirectory, make_state: MakeState
) -> None:
    other, same = write_checkpoint(run, make_state(1)), write_checkpoint(run, make_state(2))
    assert make_room(run, 2) == same
    assert list(same.iterdir()) == []
    assert checkpoints(run) == [other]


def test_where_there_can_be_no_room_the_last_checkpoint_is_named(
    run: RunDirectory, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(run, make_state(1))

    def full(self: Path, **_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    message = "no space left .* step 2 was not written, step-00000001 is the last"
    with pytest.raises(CheckpointError, match=message):
        make_room(run, 2)
