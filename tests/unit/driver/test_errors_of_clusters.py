"""What a run keeps of errors of its cluster, and what they are raised as."""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

import flambeau as fb
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.registry import register
from flambeau.config import RemoteCluster
from flambeau.errors import ConfigError, RunDirectoryError, WorkerLostError


class Nowhere(RemoteCluster):
    """No agent of it ever joins."""


class NowhereCluster(Cluster):
    coordinator_host = "127.0.0.1"
    replaces_single_agents = True
    patience = 0.0
    #: What `start` raises, which agents end at once, and what `restart` raises.
    problem: ClassVar[Exception | None] = None
    lost: ClassVar[list[AgentEnded]] = []
    no_other: ClassVar[Exception | None] = None

    def __init__(self, settings: Nowhere, frames: Mapping[str, Any]) -> None:
        self.agents = settings.workers
        self.patience = 60.0 if self.lost else 0.0

    def start(self, launch: Launch) -> None:
        if self.problem is not None:
            raise self.problem

    def poll(self) -> list[AgentEnded]:
        return self.lost

    def restart(self, agents: Sequence[int]) -> None:
        if self.no_other is not None:
            raise self.no_other

    def stop(self) -> None:
        """Nothing has been started."""


register(Nowhere, f"{__name__}:NowhereCluster")


def fit(run_dir: Path, restarts: int = 0) -> None:
    ones = np.ones((4, 1), np.float32)
    fb.fit(
        nn.Linear(1, 1),
        train=(ones, ones),
        loss="mse",
        cluster=Nowhere(workers=2),
        run_dir=run_dir,
        recovery={"max_restarts": restarts},
        observe={"progress": "none"},
    )


def assert_reported(run_dir: Path, error: str, restarts: int = 0) -> None:
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["status"], report["restarts"]) == ("failed", restarts)
    assert error in report["error"]
    last = json.loads((run_dir / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["status"]) == ("job_end", "failed")
    assert last["error"] == report["error"]


def test_an_error_of_a_cluster_keeps_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NowhereCluster, "problem", OSError("no route to scheduler"))
    with pytest.raises(OSError, match=r"^no route to scheduler$"):
        fit(tmp_path / "run")
    assert_reported(tmp_path / "run", "OSError: no route to scheduler")


def test_a_file_of_the_cluster_is_none_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "sbatch")
    monkeypatch.setattr(NowhereCluster, "problem", missing)
    with pytest.raises(FileNotFoundError, match="'sbatch'"):
        fit(tmp_path / "run")


@pytest.mark.parametrize("name", ["run/events.jsonl", None])
def test_a_full_disk_is_one_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    path = None if name is None else str(tmp_path / name)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    monkeypatch.setattr(NowhereCluster, "problem", full)
    with pytest.raises(RunDirectoryError, match=r"cannot use .*run as a run directory: no space"):
        fit(tmp_path / "run")


def test_agents_that_do_not_join_are_in_the_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 agents of 2"):
        fit(tmp_path / "run")
    assert_reported(tmp_path / "run", "2 agents of 2 (0, 1) did not join")


def test_an_agent_that_cannot_be_started_again_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NowhereCluster, "lost", [AgentEnded("gone", agent) for agent in (0, 1)])
    monkeypatch.setattr(NowhereCluster, "no_other", ConfigError("the queue is closed"))
    with pytest.raises(ConfigError, match="the queue is closed"):
        fit(tmp_path / "run", restarts=1)
    assert_reported(tmp_path / "run", "the queue is closed", restarts=1)


@pytest.mark.parametrize("restarts", [0, 1])
def test_restarts_are_recommended_only_to_those_who_had_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    monkeypatch.setattr(NowhereCluster, "lost", [AgentEnded("gone", agent) for agent in (0, 1)])
    with pytest.raises(WorkerLostError) as raised:
        fit(tmp_path / "run", restarts=restarts)
    text = str(raised.value)
    assert "The same call starts from the beginning, since there is no checkpoint yet" in text
    assert ("max_restarts" in text) == (restarts == 0)
