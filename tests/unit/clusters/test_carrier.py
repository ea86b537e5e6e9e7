"""Checkpoints that come from agents elsewhere."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import best, checkpoints, latest
from flambeau.checkpoint.store import TrainingState, read_checkpoint, write_checkpoint
from flambeau.clusters.file_transfer.carrier import Carrier, remove_traces
from flambeau.clusters.file_transfer.depot import Depot
from flambeau.clusters.file_transfer.file_parts import write_part
from flambeau.clusters.file_transfer.mirror import Mirror
from flambeau.coordination.file_messages import (
    FilePart,
    FilesSent,
    FilesStored,
    KeepFiles,
    WantFiles,
)
from flambeau.errors import ConfigError, DataError, JobFailedError


class Elsewhere:
    """An agent with a folder of its own, asked in the same process."""

    def __init__(
        self, parent: Path, number: int, limit: int = 1 << 20, depot: Depot | None = None
    ) -> None:
        parent.mkdir()
        self.mirror = Mirror(str(parent), limit, depot)
        self.number, self.answers = number, []

    def save(self, step: int) -> None:
        state = TrainingState(step, 0, 2, {"w": torch.full((3,), float(step))}, {}, {"loss": 0.5})
        write_checkpoint(RunDirectory(self.mirror.root), state)

    def hear(self, message: Any, buffers: Any = ()) -> None:
        if isinstance(message, FilePart):
            write_part(self.mirror.root, message, buffers[0])
        elif isinstance(message, FilesStored):
            self.mirror.fetch(message.names)
        elif isinstance(message, WantFiles):
            self.mirror.send(self.number, message.directory, self.say)
        elif isinstance(message, KeepFiles):
            self.mirror.forget(message.checkpoints)

    def say(self, message: Any, buffers: Any = ()) -> None:
        self.answers.append((message, bytes(buffers[0]) if buffers else b""))


def deliver(carrier: Carrier, agents: dict[int, Elsewhere]) -> None:
    sends = {number: agent.hear for number, agent in agents.items()}
    for agent in agents.values():
        answers, agent.answers = agent.answers, []
        for message, data in answers:
            if isinstance(message, FilesSent):
                carrier.sent(message, sends)
            else:
                carrier.part(message, data)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.code.mkdir(parents=True)
    (run.code / "model.pkl").write_bytes(b"code")
    return run


def test_a_checkpoint_is_there_when_all_of_it_has_come(run: RunDirectory, tmp_path: Path) -> None:
    agents = {number: Elsewhere(tmp_path / str(number), number) for number in (0, 1)}
    agents[0].save(7)
    other = agents[1].mirror.root / "checkpoints" / "step-00000007"
    other.mkdir(parents=True)
    (other / "server-1.safetensors").write_bytes(b"rows")
    carrier = Carrier(run, keep=2, initial=None)
    carrier.saved(7, ("loss", 0.5), {n: agent.hear for n, agent in agents.items()})
    deliver(carrier, {0: agents[0]})
    assert carrier.busy
    assert not checkpoints(run)
    deliver(carrier, {1: agents[1]})
    assert not carrier.busy
    (path,) = checkpoints(run)
    assert (path / "server-1.safetensors").read_bytes() == b"rows"
    assert torch.equal(read_checkpoint(path).model["w"], torch.full((3,), 7.0))
    assert (latest(run) or {})["step"] == 7
    assert (best(run) or {})["value"] == 0.5
    remove_traces(run.path)
    assert not [path.name for path in run.path.iterdir() if path.name.startswith(".")]


def test_only_what_the_run_keeps_stays_anywhere(run: RunDirectory, tmp_path: Path) -> None:
    agent = Elsewhere(tmp_path / "0", 0)
    carrier = Carrier(run, keep=1, initial=None)
    for step in (1, 2, 3):
        agent.save(step)
        carrier.saved(step, None, {0: agent.hear})
        deliver(carrier, {0: agent})
    assert [path.name for path in checkpoints(run)] == ["step-00000003"]
    assert [path.name for path in checkpoints(RunDirectory(agent.mirror.root))] == ["step-00000003"]


@pytest.mark.parametrize("left", [0, 1])
def test_what_was_pruned_before_it_was_sent_is_passed_over(
    run: RunDirectory, tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Elsewhere(tmp_path / "0", 0)
    agent.save(1)
    (path,) = checkpoints(RunDirectory(agent.mirror.root))
    found = sorted(path.iterdir())[:left]
    shutil.rmtree(path)
    if left:  # it was still there when the files were looked up
        monkeypatch.setattr(Path, "glob", lambda self, pattern: found)
    carrier = Carrier(run, keep=1, initial=None)
    carrier.saved(1, None, {0: agent.hear})
    deliver(carrier, {0: agent})
    monkeypatch.undo()
    assert not carrier.busy
    agent.save(2)
    carrier.saved(2, None, {0: agent.hear})
    deliver(carrier, {0: agent})
    assert [path.name for path in checkpoints(run)] == ["step-00000002"]


def test_agents_get_code_and_what_they_begin_with(run: RunDirectory, tmp_path: Path) -> None:
    first, second = Elsewhere(tmp_path / "0", 0), Elsewhere(tmp_path / "1", 1)
    first.save(4)
    carrier = Carrier(run, keep=1, initial=None)
    carrier.saved(4, None, {0: first.hear})
    deliver(carrier, {0: first})
    (path,) = checkpoints(run)
    starting = Carrier(run, keep=1, initial=path.resolve())
    starting.bring(b"peer", path.name, second.hear)
    there = RunDirectory(second.mirror.root)
    assert (there.code / "model.pkl").read_bytes() == b"code"
    for folder in (there, RunDirectory(second.mirror.root / "init")):
        (copy,) = checkpoints(folder)
        assert read_checkpoint(copy).step == 4


def test_files_of_a_lost_agent_are_not_waited_for(run: RunDirectory, tmp_path: Path) -> None:
    agents = {number: Elsewhere(tmp_path / str(number), number) for number in (0, 1)}
    for step in (7, 9):
        agents[0].save(step)
    carrier, hears = Carrier(run, keep=2, initial=None), {0: agents[0].hear, 1: agents[1].hear}
    carrier.saved(7, None, hears)
    deliver(carrier, {0: agents[0]})
    carrier.lost(1)
    assert not carrier.busy
    assert not checkpoints(run)
    # What the other one still sends of it is ignored, and the next checkpoint is whole.
    carrier.sent(FilesSent(0, "checkpoints/step-00000007"), hears)
    carrier.saved(9, None, {0: agents[0].hear})
    deliver(carrier, {0: agents[0]})
    assert [path.name for path in checkpoints(run)] == ["step-00000009"]


def test_a_manifest_that_comes_twice_is_the_last_one(run: RunDirectory, tmp_path: Path) -> None:
    agent = Elsewhere(tmp_path / "0", 0)
    agent.save(7)
    carrier, hears = Carrier(run, keep=2, initial=None), {0: agent.hear}
    for _ in range(2):
        carrier.saved(7, None, hears)
        deliver(carrier, {0: agent})
    assert read_checkpoint(checkpoints(run)[0]).step == 7


def test_what_is_too_large_ends_the_job(run: RunDirectory, tmp_path: Path) -> None:
    agent = Elsewhere(tmp_path / "0", 0, limit=10)
    agent.save(1)
    carrier = Carrier(run, keep=1, initial=None)
    carrier.saved(1, None, {0: agent.hear})
    with pytest.raises(JobFailedError, match="run_dir that all machines share"):
        deliver(carrier, {0: agent})


def settle(carrier: Carrier, agent: Elsewhere) -> None:
    deadline = time.monotonic() + 30
    while carrier.busy:
        assert time.monotonic() < deadline
        carrier.settle({0: agent.hear})
        time.sleep(0.01)


def test_what_is_large_goes_through_the_depot(run: RunDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "depot"
    depot = Depot(folder.as_uri())
    agent = Elsewhere(tmp_path / "0", 0, limit=10, depot=depot)
    carrier = Carrier(run, keep=1, initial=None, limit=10, depot=depot)
    for step in (1, 2):
        agent.save(step)
        carrier.saved(step, None, {0: agent.hear})
        assert any(folder.rglob("dense.safetensors"))
        deliver(carrier, {0: agent})
        settle(carrier, agent)
        assert not any(path.is_file() for path in folder.rglob("*"))
    (path,) = checkpoints(run)
    assert read_checkpoint(path).step == 2
    assert [path.name for path in checkpoints(RunDirectory(agent.mirror.root))] == ["step-00000002"]
    other = Elsewhere(tmp_path / "1", 1, limit=10, depot=depot)
    carrier.bring(b"other", path.name, other.hear)
    (copy,) = checkpoints(RunDirectory(other.mirror.root))
    assert read_checkpoint(copy).step == 2
    carrier.close()
    assert not folder.exists()


def test_a_depot_that_cannot_be_read_ends_the_job(run: RunDirectory, tmp_path: Path) -> None:
    depot = Depot((tmp_path / "depot").as_uri())
    agent = Elsewhere(tmp_path / "0", 0, limit=10, depot=depot)
    agent.save(1)
    carrier = Carrier(run, keep=1, initial=None, limit=10, depot=depot)
    carrier.saved(1, None, {0: agent.hear})
    depot.remove()
    deliver(carrier, {0: agent})
    with pytest.raises(DataError, match=r"depot.*cannot be read"):
        settle(carrier, agent)
    assert not checkpoints(run)


def test_data_of_the_driver_is_brought_once(run: RunDirectory, tmp_path: Path) -> None:
    run.shared.mkdir()
    (run.shared / "0").write_bytes(b"rows")
    agent = Elsewhere(tmp_path / "0", 0)
    carrier = Carrier(run, keep=1, initial=None, limit=4)
    carrier.bring(b"peer", None, agent.hear)
    copy = RunDirectory(agent.mirror.root).shared / "0"
    assert copy.read_bytes() == b"rows"
    copy.unlink()
    carrier.bring(b"peer", None, agent.hear)
    assert not copy.exists()


def test_large_data_of_the_driver_is_in_the_depot_once_for_all(
    run: RunDirectory, tmp_path: Path
) -> None:
    run.shared.mkdir()
    (run.shared / "0").write_bytes(b"many rows")
    depot = Depot((tmp_path / "depot").as_uri())
    carrier = Carrier(run, keep=1, initial=None, limit=8, depot=depot)
    for number in (0, 1):
        agent = Elsewhere(tmp_path / str(number), number, depot=depot)
        carrier.bring(str(number).encode(), None, agent.hear)
        assert (RunDirectory(agent.mirror.root).shared / "0").read_bytes() == b"many rows"
        (run.shared / "0").write_bytes(b"other rows")  # which are not read
    carrier.close()
    assert not (tmp_path / "depot").exists()


def test_large_data_of_the_driver_needs_a_depot(run: RunDirectory, tmp_path: Path) -> None:
    run.shared.mkdir()
    (run.shared / "0").write_bytes(bytes(3 << 20))
    agent = Elsewhere(tmp_path / "0", 0)
    carrier = Carrier(run, keep=1, initial=None, limit=1 << 20)
    with pytest.raises(ConfigError, match=r"at least 3 MB.*carry_mb=1 .*depot="):
        carrier.bring(b"peer", None, agent.hear)
