"""Which checkpoints stay."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flambeau.checkpoint import RunDirectory, checkpoints, lease, mark_best, prune, retention
from flambeau.checkpoint.manifest import MANIFEST, Manifest, TableEntry
from flambeau.checkpoint.store import TrainingState, write_checkpoint
from flambeau.errors import CheckpointError

MakeState = Callable[[int], TrainingState]


@pytest.fixture
def trained(run: RunDirectory, make_state: MakeState) -> RunDirectory:
    for step in (1, 2, 3, 4):
        write_checkpoint(run, make_state(step))
    return run


def steps(run: RunDirectory) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints(run)]


@pytest.mark.parametrize(("keep", "kept"), [(2, [3, 4]), (1, [4]), (0, [4]), (9, [1, 2, 3, 4])])
def test_the_last_ones_stay(trained: RunDirectory, keep: int, kept: list[int]) -> None:
    prune(trained, keep)
    assert steps(trained) == kept


def test_the_best_stays(trained: RunDirectory) -> None:
    mark_best(trained, 1, "loss", 0.1)
    removed = prune(trained, 1)
    assert steps(trained) == [1, 4]
    assert [path.name for path in removed] == ["step-00000002", "step-00000003"]


def test_the_one_written_last_stays_though_a_later_step_is_there(
    trained: RunDirectory, make_state: MakeState
) -> None:
    write_checkpoint(trained, make_state(2))
    prune(trained, 1)
    assert steps(trained) == [2, 4]


def test_a_leased_one_stays_until_it_is_released(trained: RunDirectory) -> None:
    with lease(trained.checkpoints / "step-00000002"):
        prune(trained, 1)
        assert steps(trained) == [2, 4]
    prune(trained, 1)
    assert steps(trained) == [4]


def test_an_expired_lease_protects_nothing(trained: RunDirectory) -> None:
    with lease(trained.checkpoints / "step-00000002", seconds=0):
        prune(trained, 1)
    assert steps(trained) == [4]


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_damaged_lease_protects_nothing(trained: RunDirectory, content: str) -> None:
    (trained.checkpoints / "step-00000002" / "lease-1-a.json").write_text(content)
    prune(trained, 1)
    assert steps(trained) == [4]


def test_one_of_two_leases_is_enough(trained: RunDirectory) -> None:
    path = trained.checkpoints / "step-00000002"
    with lease(path):
        with lease(path):
            pass
        prune(trained, 1)
        assert steps(trained) == [2, 4]


def test_a_lease_leaves_no_file(trained: RunDirectory) -> None:
    path = trained.checkpoints / "step-00000002"
    before = sorted(path.iterdir())
    with lease(path):
        pass
    assert sorted(path.iterdir()) == before


def test_there_is_no_lease_on_what_is_being_removed(trained: RunDirectory) -> None:
    path = trained.checkpoints / "step-00000002"
    (path / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match="is being removed"), lease(path):
        pass


def test_there_is_no_lease_on_what_is_gone(trained: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match="no longer there"), lease(trained.path / "no"):
        pass


def with_base(run: RunDirectory, step: int, base: int) -> None:
    """Make the tables of one checkpoint add to those of another."""
    layers = [["table-item-0.safetensors"], [f"../step-{base:08d}/table-item-0.safetensors"]]
    tables = {"item": TableEntry(spec={}, layers=layers)}
    directory = run.checkpoints / f"step-{step:08d}"
    Manifest.read(directory).model_copy(update={"tables": tables}).write(directory)


def test_the_base_of_one_that_stays_stays(trained: RunDirectory) -> None:
    with_base(trained, step=4, base=2)
    prune(trained, 1)
    assert steps(trained) == [2, 4]


def test_the_base_of_a_leased_one_stays_as_long(trained: RunDirectory) -> None:
    with_base(trained, step=3, base=1)
    with lease(trained.checkpoints / "step-00000003"):
        prune(trained, 1)
        assert steps(trained) == [1, 3, 4]
    prune(trained, 1)
    assert steps(trained) == [4]


def test_one_goes_before_its_base(trained: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(retention, "remove_checkpoint", lambda path: removed.append(path.name))
    with_base(trained, step=3, base=2)
    prune(trained, 1)
    assert removed == ["step-00000003", "step-00000002", "step-00000001"]


def test_what_a_crash_left_goes(trained: RunDirectory) -> None:
    left = trained.checkpoints / "step-00000009"
    left.mkdir()
    prune(trained, 4)
    assert not left.exists()
    assert steps(trained) == [1, 2, 3, 4]


def test_a_removal_that_is_cut_short_has_removed_the_manifest(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, ignore_errors: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", crash)
    with pytest.raises(KeyboardInterrupt):
        prune(trained, 3)
    assert (trained.checkpoints / "step-00000001").is_dir()
    assert steps(trained) == [2, 3, 4]
