"""What best, latest and step-N stand for."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from flambeau.checkpoint import (
    RunDirectory,
    best,
    latest,
    mark_best,
    parse_reference,
    prune,
    repair_pointers,
    resolve,
)
from flambeau.checkpoint.references import checkpoint_path, mark_latest
from flambeau.checkpoint.saver import CheckpointSaver
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
    with pytest.raises(CheckpointError, match="has not trained yet: its only checkpoint is"):
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
    with pytest.raises(ConfigError, match="'newest' is not a checkpoint"):
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


DAMAGED = [b"{", b"{}", b"[]", b"null", b'{"step": null}', b"\xff", b""]


@pytest.fixture
def noted(run: RunDirectory, make_state: MakeState) -> RunDirectory:
    """Three checkpoints, the second of which was the best when it was written."""
    with CheckpointSaver(run, keep=3) as saver:
        for step in (1, 2, 3):
            saver.save(make_state(step), ("loss", 1 / 3) if step == 2 else None)
    return run


@pytest.mark.parametrize("content", [None, *DAMAGED])
def test_a_best_pointer_that_is_lost_is_known_from_the_manifests(
    noted: RunDirectory, content: bytes | None
) -> None:
    noted.best.unlink() if content is None else noted.best.write_bytes(content)
    assert best(noted) == {"step": 2, "metric": "loss", "value": 1 / 3}
    assert resolve(noted, "best").name == "step-00000002"
    assert parse_reference(str(noted.path)) == (noted.path, "best")
    assert checkpoint_path(noted, 2) not in prune(noted, keep=1)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_latest_pointer_is_known_from_the_manifests(
    noted: RunDirectory, content: bytes
) -> None:
    noted.latest.write_bytes(content)
    assert latest(noted) == {"step": 3, "metrics": {"loss": 0.25}}
    assert resolve(noted, "latest").name == "step-00000003"


def test_pointers_are_repaired(noted: RunDirectory) -> None:
    before = noted.best.read_bytes(), noted.latest.read_bytes()
    noted.best.write_bytes(before[0][:-5])
    noted.latest.write_bytes(b"")
    repair_pointers(noted)
    assert (noted.best.read_bytes(), noted.latest.read_bytes()) == before


def test_a_best_that_was_committed_but_not_marked_is_marked_by_the_repair(
    noted: RunDirectory,
) -> None:
    mark_best(noted, 1, "loss", 0.5)
    repair_pointers(noted)
    assert best(noted) == {"step": 2, "metric": "loss", "value": 1 / 3}


def test_what_an_evaluator_marked_stays(noted: RunDirectory) -> None:
    mark_best(noted, 3, "auc", 0.9)
    repair_pointers(noted)
    assert best(noted) == {"step": 3, "metric": "auc", "value": 0.9}


def test_a_damaged_pointer_that_no_manifest_replaces_is_removed(
    run: RunDirectory, make_state: MakeState
) -> None:
    write_checkpoint(run, make_state(1))
    run.best.write_text("{")
    repair_pointers(run)
    assert not run.best.exists()
    assert parse_reference(str(run.path)) == (run.path, "latest")


def damage_manifest(run: RunDirectory, step: int) -> Path:
    file = checkpoint_path(run, step) / "manifest.json"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("pointer", ["sound", "lost"])
def test_a_latest_checkpoint_with_a_damaged_manifest_is_skipped_with_a_warning(
    trained: RunDirectory, pointer: str
) -> None:
    file = damage_manifest(trained, 3)
    if pointer == "lost":
        trained.latest.unlink()
    with pytest.warns(UserWarning, match=f"{file} is corrupt.*step-00000002 is used") as warned:
        assert resolve(trained, "latest").name == "step-00000002"
    assert len(warned) == 1


def test_a_best_checkpoint_may_be_one_with_a_damaged_manifest(noted: RunDirectory) -> None:
    file = damage_manifest(noted, 3)
    assert resolve(noted, "best").name == "step-00000002"  # as best.json says
    noted.best.unlink()
    with pytest.warns(UserWarning, match=f"{file} is corrupt"):
        assert resolve(noted, "best").name == "step-00000002"


@pytest.mark.parametrize("which", ["step-2", "best"])
def test_a_step_with_a_damaged_manifest_is_an_error_that_names_it(
    trained: RunDirectory, which: str
) -> None:
    file = damage_manifest(trained, 2)
    with pytest.raises(CheckpointError, match=f"{file} is corrupt.*: step-00000001, step-00000003"):
        resolve(trained, which)


def test_a_run_whose_manifests_are_all_damaged_is_an_error_that_names_them(
    run: RunDirectory, make_state: MakeState
) -> None:
    write_checkpoint(run, make_state(1))
    file = damage_manifest(run, 1)
    with pytest.raises(CheckpointError, match=f"has no sound checkpoint: {file} is corrupt"):
        resolve(run, "latest")


def test_one_that_is_just_written_is_no_damage(trained: RunDirectory) -> None:
    checkpoint_path(trained, 4).mkdir()
    assert resolve(trained, "latest").name == "step-00000003"
