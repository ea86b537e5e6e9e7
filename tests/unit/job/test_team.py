from pathlib import Path
from typing import Any

import pytest
from fake_stage import job_settings

from flambeau.checkpoint import RunDirectory
from flambeau.config import AllReduce, Hybrid, ParameterServer
from flambeau.job.conducting import AmongThemselves, InRounds
from flambeau.job.free_conducting import Free
from flambeau.job.team import make_team


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


@pytest.mark.parametrize(
    ("strategy", "kind", "servers", "elastic"),
    [
        (AllReduce(), AmongThemselves, 0, False),
        (ParameterServer(servers=2), InRounds, 2, False),
        (ParameterServer(consistency="bounded"), Free, 1, True),
        (ParameterServer(consistency="asynchronous", servers=3), Free, 3, True),
        (Hybrid(servers=2), AmongThemselves, 2, False),
        (Hybrid(consistency="synchronous"), InRounds, 1, False),
    ],
)
def test_the_strategy_decides_who_conducts_and_how_many_servers_there_are(
    run: RunDirectory, strategy: Any, kind: type, servers: int, elastic: bool
) -> None:
    team = make_team(run, job_settings(2, strategy), resumes=False)
    assert type(team.conducting) is kind
    assert (team.workers, team.servers) == (2, servers)
    assert team.conducting is not None
    assert team.conducting.elastic is elastic


def test_an_evaluator_is_part_of_the_team_when_asked_for(run: RunDirectory) -> None:
    assert not make_team(run, job_settings(), resumes=False).evaluator
    valid = {"kind": "files", "path": "x"}
    settings = job_settings(valid=valid, evaluator=True)
    assert make_team(run, settings, resumes=False).evaluator
