"""The last checkpoint of a job whose servers are lost while it is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_stage import job_settings

from flambeau.checkpoint import RunDirectory, checkpoints
from flambeau.errors import CheckpointError, SnapshotLostError
from flambeau.roles.worker_checkpoints import ATTEMPTS, WorkerCheckpoints
from flambeau.strategies.base import Finish, TableCheckpoints
from flambeau.strategies.group import Solo
from flambeau.training.position import Position


class LosingTables(TableCheckpoints):
    """Servers of which one is lost the first `times` times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def begin(self, directory: Path) -> Finish:
        def finish() -> Any:
            self.left -= 1
            if self.left >= 0:
                raise SnapshotLostError("the server was lost")
            return {}, {}

        return finish


class Job:
    def __init__(self, run: RunDirectory, lost: int) -> None:
        self.reports: list[str] = []
        self.waited = 0
        strategy = SimpleNamespace(dropped_rows=0, catch_up=self._catch_up)
        parts: Any = SimpleNamespace(
            group=Solo(),
            strategy=strategy,
            model=torch.nn.Linear(2, 1),
            optimizers={},
            schedules={},
            report=lambda kind, **fields: self.reports.append(kind),
        )
        milestones: Any = SimpleNamespace(position=Position(step=7), best=None, dump=dict)
        self.saving = WorkerCheckpoints(run, job_settings(), parts, LosingTables(lost))
        self.saving.follow(milestones)

    def _catch_up(self) -> None:
        self.waited += 1

    def end(self) -> None:
        try:
            self.saving.save({}, best=False)
            self.saving.complete()
        finally:
            self.saving.close()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


@pytest.mark.parametrize("lost", [0, 1, ATTEMPTS])
def test_it_is_saved_again_when_all_servers_are_there(run: RunDirectory, lost: int) -> None:
    job = Job(run, lost)
    job.end()
    assert [path.name for path in checkpoints(run)] == ["step-00000007"]
    assert job.waited == job.reports.count("warning") == lost


def test_it_is_not_tried_for_ever(run: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match="the last checkpoint was not written"):
        Job(run, ATTEMPTS + 1).end()
    assert not checkpoints(run)
