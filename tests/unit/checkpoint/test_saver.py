"""Checkpoints in the background."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flambeau.checkpoint import RunDirectory, best, checkpoints, saver, store
from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.checkpoint.saver import CheckpointSaver
from flambeau.checkpoint.store import (
    Others,
    Snapshot,
    TrainingState,
    read_checkpoint,
    write_snapshot,
)
from flambeau.checkpoint.tree_file import read_tree, write_tree
from flambeau.errors import CheckpointError, MessagingError, SnapshotLostError

MakeState = Callable[[int], TrainingState]
WAIT = CheckpointSaver.wait


class Gate:
    """A `write_snapshot` that waits until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, run: RunDirectory, snapshot: Snapshot, others: Others | None) -> Path:
        assert self.opened.wait(30)
        return write_snapshot(run, snapshot, others)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(saver, "write_snapshot", gate)
    return gate


def fail_with(error: OSError) -> Callable[..., None]:
    def write(*_: object) -> None:
        raise error

    return write


def test_what_is_saved_is_the_state_at_that_moment(
    run: RunDirectory, make_state: MakeState, gate: Gate
) -> None:
    state = make_state(1)
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(state)
        for tensor in (*state.model.values(), state.extra["optimizer"][0]):
            tensor.zero_()
        state.extra["position"] = None
        gate.opened.set()
    back = read_checkpoint(checkpoints(run)[0])
    assert torch.equal(back.model["weight"], make_state(1).model["weight"])
    assert torch.equal(back.extra["optimizer"][0], torch.ones(3))
    assert back.extra["position"] == (1, 7)


def test_save_returns_before_the_checkpoint_is_written(
    run: RunDirectory, make_state: MakeState, gate: Gate
) -> None:
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1))
        assert checkpoints(run) == []
        gate.opened.set()
        writer.wait()
        assert len(checkpoints(run)) == 1


def test_the_first_is_committed_before_the_second_is_copied(
    run: RunDirectory, make_state: MakeState, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = []

    def wait(self: CheckpointSaver) -> None:
        gate.opened.set()
        WAIT(self)

    def take_snapshot(state: TrainingState) -> Snapshot:
        committed.append(len(checkpoints(run)))
        return store.take_snapshot(state)

    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1))
        monkeypatch.setattr(CheckpointSaver, "wait", wait)
        monkeypatch.setattr(saver, "take_snapshot", take_snapshot)
        writer.save(make_state(2))
    assert committed == [1]


def test_old_checkpoints_are_pruned(run: RunDirectory, make_state: MakeState) -> None:
    with CheckpointSaver(run, keep=2) as writer:
        for step in (1, 2, 3):
            writer.save(make_state(step))
    assert [path.name for path in checkpoints(run)] == ["step-00000002", "step-00000003"]


@pytest.mark.parametrize("call", ["save", "wait", "close"])
def test_a_full_disk_is_raised_by_the_next_call(
    run: RunDirectory, make_state: MakeState, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    writer = CheckpointSaver(run, keep=2)
    writer.save(make_state(1))
    writer.wait()
    full = fail_with(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("flambeau.checkpoint.store.write_tensors", full)
    writer.save(make_state(2))
    with pytest.raises(CheckpointError, match="step 2 was not written, step-00000001 is the last"):
        writer.save(make_state(3)) if call == "save" else getattr(writer, call)()
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000001"]
    writer.close()


@pytest.mark.parametrize("when", ["begin", "finish"])
def test_a_full_disk_of_those_who_save_with_it_names_the_last_checkpoint(
    run: RunDirectory, make_state: MakeState, when: str
) -> None:
    full = fail_with(OSError(errno.ENOSPC, "No space left on device"))
    begin = full if when == "begin" else lambda _: full
    writer = CheckpointSaver(run, keep=2)
    writer.save(make_state(1))
    message = r"no space left in .*; the checkpoint of step 2 was not written, step-00000001 is"
    with pytest.raises(CheckpointError, match=message) as caught, writer:
        writer.save(make_state(2), begin=begin)
    assert isinstance(caught.value.__cause__, OSError)
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000001"]


def test_after_an_error_it_goes_on(
    run: RunDirectory, make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CheckpointSaver(run, keep=2) as writer:
        with monkeypatch.context() as patch:
            broken = fail_with(OSError(errno.EIO, "broken"))
            patch.setattr("flambeau.checkpoint.store.write_tensors", broken)
            writer.save(make_state(1))
            with pytest.raises(CheckpointError, match=r"broken; .* there is no earlier checkpoint"):
                writer.wait()
        writer.save(make_state(2))
    assert [path.name for path in checkpoints(run)] == ["step-00000002"]


def test_what_cannot_be_saved_is_raised_at_once(run: RunDirectory, make_state: MakeState) -> None:
    state = make_state(1)
    state.extra = {"hook": print}
    with (
        CheckpointSaver(run, keep=2) as writer,
        pytest.raises(CheckpointError, match=r"state\.hook"),
    ):
        writer.save(state)


def test_close_ends_the_thread(run: RunDirectory, make_state: MakeState) -> None:
    before = threading.active_count()
    writer = CheckpointSaver(run, keep=2)
    writer.save(make_state(1))
    writer.close()
    assert threading.active_count() == before


TABLE = TableEntry(spec={"name": "user", "dim": 2}, layers=[["table.arrow"]])


class Servers:
    """Others who write a file into each checkpoint, when the saver waits for them."""

    def __init__(self) -> None:
        self.directories: list[Path] = []
        self.fails: Exception | None = None

    def begin(self, directory: Path) -> Others:
        assert list(directory.iterdir()) == []
        self.directories.append(directory)
        number = len(self.directories)
        return lambda: self._finish(directory, number)

    def _finish(
        self, directory: Path, number: int
    ) -> tuple[dict[str, FileEntry], dict[str, TableEntry]]:
        entry = write_tree(directory / "server.safetensors", {"rows": number})
        if self.fails is not None:
            raise self.fails
        return {"server.safetensors": entry}, {"user": TABLE}


def test_what_others_write_is_part_of_the_checkpoint(
    run: RunDirectory, make_state: MakeState
) -> None:
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1), begin=Servers().begin)
    (path,) = checkpoints(run)
    manifest = Manifest.read(path)
    file = "server.safetensors"
    assert read_tree(path / file, manifest.files[file]) == {"rows": 1}
    assert manifest.tables == {"user": TABLE}
    assert torch.equal(read_checkpoint(path).model["weight"], make_state(1).model["weight"])


def test_others_have_begun_when_save_returns_and_are_waited_for_later(
    run: RunDirectory, make_state: MakeState, gate: Gate
) -> None:
    servers = Servers()
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1), begin=servers.begin)
        (directory,) = servers.directories
        assert list(directory.iterdir()) == []
        gate.opened.set()
    assert checkpoints(run) == [directory]


def test_a_checkpoint_of_the_same_step_is_replaced_with_what_others_wrote(
    run: RunDirectory, make_state: MakeState
) -> None:
    servers = Servers()
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1), begin=servers.begin)
        writer.save(make_state(1), begin=servers.begin)
    (path,) = checkpoints(run)
    entry = Manifest.read(path).files["server.safetensors"]
    assert read_tree(path / "server.safetensors", entry) == {"rows": 2}


def test_if_others_fail_the_next_call_says_so_and_nothing_is_left(
    run: RunDirectory, make_state: MakeState
) -> None:
    servers = Servers()
    servers.fails = MessagingError("server 1 does not answer")
    with CheckpointSaver(run, keep=3) as writer:
        writer.save(make_state(1), begin=servers.begin)
        with pytest.raises(MessagingError, match="server 1 does not answer"):
            writer.wait()
    assert list(run.checkpoints.iterdir()) == []


def test_if_others_cannot_begin_that_is_raised_at_once_and_nothing_is_left(
    run: RunDirectory, make_state: MakeState
) -> None:
    def begin(directory: Path) -> Others:
        (directory / "half").touch()
        raise MessagingError("server 0 is gone")

    with CheckpointSaver(run, keep=3) as writer:
        with pytest.raises(MessagingError, match="server 0 is gone"):
            writer.save(make_state(1), begin=begin)
        assert list(run.checkpoints.iterdir()) == []
        writer.save(make_state(2))
    assert [path.name for path in checkpoints(run)] == ["step-00000002"]


@pytest.mark.parametrize("at", ["begin", "finish"])
def test_a_checkpoint_that_is_lost_with_a_server_is_given_up_and_the_next_is_written(
    run: RunDirectory, make_state: Callable[[int], TrainingState], at: str
) -> None:
    given_up: list[tuple[int, str]] = []

    def finish() -> Any:
        raise SnapshotLostError("the server was lost")

    def begin(directory: Path) -> Any:
        if at == "begin":
            finish()
        return finish

    with CheckpointSaver(run, 3, on_lost=lambda *lost: given_up.append(lost)) as saver:
        saver.save(make_state(1), ("loss", 0.5), begin)
        saver.save(make_state(2))
    assert given_up == [(1, "the server was lost")]
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000002"]
    assert best(run) is None
