from pathlib import Path
from typing import Any

import pytest
from fake_stage import job_settings

from flambeau.checkpoint import RunDirectory
from flambeau.config import AllReduce, Hybrid, ParameterServer
from flambeau.driver.coordinators import PassiveCoordinator, RoundCoordinator
from flambeau.driver.task_coordinator import TaskCoordinator
from flambeau.driver.topology import make_topology


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


@pytest.mark.parametrize(
    ("strategy", "kind", "servers", "elastic"),
    [
        (AllReduce(), PassiveCoordinator, 0, False),
        (ParameterServer(servers=2), RoundCoordinator, 2, False),
        (ParameterServer(consistency="bounded"), TaskCoordinator, 1, True),
        (ParameterServer(consistency="asynchronous", servers=3), TaskCoordinator, 3, True),
        (Hybrid(servers=2), PassiveCoordinator, 2, False),
        (Hybrid(consistency="synchronous"), RoundCoordinator, 1, False),
    ],
)
def test_the_strategy_decides_who_conducts_and_how_many_servers_there_are(
    run: RunDirectory, strategy: Any, kind: type, servers: int, elastic: bool
) -> None:
    team = make_topology(run, job_settings(2, strategy), resumes=False)
    assert type(team.coordinator) is kind
    assert (team.workers, team.servers) == (2, servers)
    assert team.coordinator is not None
    assert team.coordinator.elastic is elastic


def test_an_evaluator_is_part_of_the_team_when_asked_for(run: RunDirectory) -> None:
    assert not make_topology(run, job_settings(), resumes=False).evaluator
    valid = {"kind": "files", "path": "x"}
    settings = job_settings(valid=valid, evaluator=True)
    assert make_topology(run, settings, resumes=False).evaluator
