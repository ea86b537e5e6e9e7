"""What best, latest and step-N stand for."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from flambeau.checkpoint import RunDirectory, best, mark_best, parse_reference, resolve
from flambeau.checkpoint.references import mark_latest
from flambeau.checkpoint.store import TrainingState, write_checkpoint
from flambeau.errors import CheckpointError, ConfigError

MakeState = Callable[[int], TrainingState]


@pytest.fixture
def trained(run: RunDirectory, make_state: MakeState) -> RunDirectory:
    for step in (1, 2, 3):
        write_checkpoint(run, make_state(step))
    mark_best(run, 2, "loss", 0.5)
    return run


@pytest.mark.parametrize(
    ("which", "name"),
    [
        ("best", "step-00000002"),
        ("latest", "step-00000003"),
        ("step-1", "step-00000001"),
        ("step-00000001", "step-00000001"),
    ],
)
def test_each_kind_of_name(trained: RunDirectory, which: str, name: str) -> None:
    assert resolve(trained, which) == trained.checkpoints / name


def test_best_says_by_which_value(trained: RunDirectory) -> None:
    assert best(trained) == {"step": 2, "metric": "loss", "value": 0.5}


def test_a_best_value_may_be_infinite(run: RunDirectory) -> None:
    mark_best(run, 1, "loss", math.inf)
    assert best(run) == {"step": 1, "metric": "loss", "value": math.inf}


def test_a_run_without_best_says_none(run: RunDirectory) -> None:
    assert best(run) is None
    with pytest.raises(CheckpointError, match="no best checkpoint yet; train it first"):
        resolve(run, "best")


def test_the_beginning_alone_is_not_the_latest(run: RunDirectory, make_state: MakeState) -> None:
    write_checkpoint(run, make_state(0))
    with pytest.raises(CheckpointError, match="has trained nothing: its only checkpoint is that"):
        resolve(run, "latest")
    assert resolve(run, "step-0").name == "step-00000000"


def test_the_beginning_may_be_the_best(trained: RunDirectory, make_state: MakeState) -> None:
    write_checkpoint(trained, make_state(0))
    mark_best(trained, 0, "loss", 0.1)
    assert resolve(trained, "best").name == "step-00000000"


def test_a_step_that_is_not_there_lists_those_that_are(trained: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match=r"step 9 .*step-00000001, step-00000002"):
        resolve(trained, "step-9")


def test_another_word_is_an_error(trained: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="'newest' is no checkpoint"):
        resolve(trained, "newest")


def test_latest_does_not_need_its_pointer(trained: RunDirectory) -> None:
    trained.latest.unlink()
    assert resolve(trained, "latest").name == "step-00000003"


def test_latest_that_is_gone_is_the_newest_there(trained: RunDirectory) -> None:
    mark_latest(trained, 7, {})
    assert resolve(trained, "latest").name == "step-00000003"


@pytest.mark.parametrize("which", ["best", "latest", "step-100"])
def test_a_reference_names_run_and_checkpoint(which: str) -> None:
    assert parse_reference(f"runs/a@{which}") == (Path("runs/a"), which)


def test_a_reference_to_a_run_means_its_best(trained: RunDirectory) -> None:
    assert parse_reference(str(trained.path)) == (trained.path, "best")


def test_a_reference_to_a_run_without_best_means_its_latest(run: RunDirectory) -> None:
    assert parse_reference(str(run.path)) == (run.path, "latest")


def test_a_directory_may_have_an_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "me@home"
    path.mkdir()
    assert parse_reference(str(path)) == (path, "latest")


def test_a_wrong_word_after_the_at_sign_is_an_error() -> None:
    with pytest.raises(ConfigError, match="best, latest or step-N"):
        parse_reference("runs/a@last")


def test_a_damaged_pointer_is_an_error_that_names_it(trained: RunDirectory) -> None:
    trained.best.write_text("{")
    with pytest.raises(CheckpointError, match=r"best\.json is corrupt"):
        best(trained)
