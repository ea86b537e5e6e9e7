from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_stage import job_settings

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path
from flambeau.checkpoint.store import TrainingState, write_checkpoint
from flambeau.config import AllReduce, Hybrid, ParameterServer
from flambeau.job.conducting import AmongThemselves, InRounds
from flambeau.job.free_conducting import Free
from flambeau.job.team import make_team


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    return run


def save(run: RunDirectory, step: int) -> Path:
    write_checkpoint(run, TrainingState(step, 0, 2, {"weight": torch.ones(8)}, {}, {}))
    return checkpoint_path(run, step)


def chooser(run: RunDirectory, *, resumes: bool) -> Callable[[int], str | None]:
    return make_team(run, job_settings(), resumes=resumes).checkpoint


def test_a_new_run_begins_with_nothing(run: RunDirectory) -> None:
    save(run, 1)
    assert chooser(run, resumes=False)(0) is None


def test_a_resumed_run_goes_on_from_the_newest_checkpoint(run: RunDirectory) -> None:
    save(run, 1)
    newest = save(run, 2)
    assert chooser(run, resumes=True)(0) == newest.name


def test_a_restarted_one_goes_on_from_what_was_saved_meanwhile(run: RunDirectory) -> None:
    choose = chooser(run, resumes=False)
    assert choose(1) is None
    assert choose(1) != (saved := save(run, 3).name)
    assert choose(1) == saved


def test_without_any_checkpoint_it_begins_anew(run: RunDirectory) -> None:
    assert chooser(run, resumes=True)(0) is None


def test_a_checkpoint_that_was_never_committed_is_not_chosen(run: RunDirectory) -> None:
    whole = save(run, 1)
    checkpoint_path(run, 2).mkdir()
    assert chooser(run, resumes=True)(0) == whole.name


def test_a_checkpoint_with_a_torn_or_missing_file_is_passed_over(run: RunDirectory) -> None:
    whole, torn, poor = save(run, 1), save(run, 2), save(run, 3)
    for path in (torn, poor):
        file = max(path.glob("*.safetensors"), key=lambda file: file.stat().st_size)
        if path is torn:
            file.write_bytes(file.read_bytes()[:-1])
        else:
            file.unlink()
    assert chooser(run, resumes=True)(0) == whole.name


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
