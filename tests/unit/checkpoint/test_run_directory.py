"""Who may use a run directory, and how."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.changes import CHANGEABLE
from flambeau.config import ArrayData, ArrayRef, CodeRef, JobSettings, Local
from flambeau.errors import RunDirectoryError

SETTINGS = {"batch_size": 32, "epochs": 1, "optimizer": {"name": "adam", "args": {"lr": 1e-5}}}


@pytest.fixture
def fresh(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "a")


def begin(run: RunDirectory, settings: dict[str, Any]) -> None:
    """A run that has come to its first checkpoint."""
    run.prepare(settings, "auto")
    save(run, 1)


def save(run: RunDirectory, step: int) -> None:
    """Commit something as a checkpoint."""
    path = run.checkpoints / f"step-{step:08d}"
    path.mkdir()
    (path / "manifest.json").touch()


def entries(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_new_run_gets_its_directories_and_settings(fresh: RunDirectory) -> None:
    assert fresh.prepare(SETTINGS, "auto") is False
    assert entries(fresh.path) == ["checkpoints", "code", "job.yaml"]
    assert yaml.safe_load(fresh.job_file.read_text()) == SETTINGS


def test_only_the_owner_sees_the_code(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    assert stat.S_IMODE(fresh.code.stat().st_mode) == 0o700


@pytest.mark.parametrize("resume", ["auto", "always", True])
def test_the_same_settings_go_on(fresh: RunDirectory, resume: Any) -> None:
    begin(fresh, SETTINGS)
    assert fresh.prepare(SETTINGS, resume) is True


def test_going_on_saves_the_new_settings(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    fresh.prepare(SETTINGS | {"epochs": 9}, "auto")
    assert yaml.safe_load(fresh.job_file.read_text())["epochs"] == 9


def test_a_run_without_a_checkpoint_starts_anew_with_any_settings(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    assert fresh.prepare(SETTINGS | {"batch_size": 64}, "auto") is False


def test_so_does_a_run_that_has_saved_only_its_beginning(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    save(fresh, 0)
    assert fresh.prepare(SETTINGS | {"batch_size": 64}, "auto") is False


def test_a_checkpoint_that_was_not_committed_is_none(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    (fresh.checkpoints / "step-00000010").mkdir()
    assert fresh.prepare(SETTINGS | {"batch_size": 64}, "auto") is False


def test_what_a_run_left_that_had_trained_nothing_is_replaced(fresh: RunDirectory) -> None:
    fresh.prepare(SETTINGS, "auto")
    save(fresh, 0)
    for file in (fresh.events, fresh.report, fresh.latest, fresh.path / "notes.txt"):
        file.touch()
    fresh.prepare(SETTINGS, "auto")
    assert entries(fresh.path) == ["checkpoints", "code", "job.yaml", "notes.txt"]
    assert entries(fresh.checkpoints) == []


def test_a_finished_run_may_go_on(fresh: RunDirectory) -> None:
    begin(fresh, SETTINGS)
    fresh.report.write_text('{"status": "finished"}')
    assert fresh.prepare(SETTINGS | {"epochs": 2}, "auto") is True


def test_other_settings_are_listed_with_both_values_and_the_remedies(fresh: RunDirectory) -> None:
    begin(fresh, SETTINGS)
    changed = {"batch_size": 64, "epochs": 5, "optimizer": {"name": "sgd"}, "seed": 3}
    with pytest.raises(RunDirectoryError) as raised:
        fresh.prepare(changed, "auto")
    message = str(raised.value)
    for part in (
        "batch_size: 32 -> 64",
        "optimizer.name: 'adam' -> 'sgd'",
        "optimizer.args.lr: 1e-05 -> not set",
        "seed: not set -> 3",
        "max_steps",
        "another run_dir",
        "init_from=",
    ):
        assert part in message
    assert "epochs: 1" not in message


def test_a_refused_change_leaves_the_settings_as_they_were(fresh: RunDirectory) -> None:
    begin(fresh, SETTINGS)
    with pytest.raises(RunDirectoryError):
        fresh.prepare(SETTINGS | {"batch_size": 1}, "auto")
    assert yaml.safe_load(fresh.job_file.read_text()) == SETTINGS


def test_every_changeable_setting_exists() -> None:
    for name in CHANGEABLE:
        assert name.split(".")[0] in JobSettings.model_fields


def job(**values: Any) -> dict[str, Any]:
    columns = {"a.b": ArrayRef(fd=3, dtype="<f4", shape=(10, 2))}
    train = ArrayData(columns=columns, inputs=("a.b",))
    settings = JobSettings(model=CodeRef(value="model.pkl"), train=train)
    return settings.model_copy(update=values).model_dump(mode="json")


def test_a_real_job_may_change_its_cluster(fresh: RunDirectory) -> None:
    begin(fresh, job())
    assert fresh.prepare(job(cluster=Local(4), metrics=("auc",)), "auto")


def test_where_arrays_are_is_not_compared(fresh: RunDirectory) -> None:
    begin(fresh, job())
    moved = ArrayRef(path="spool.arrow", offset=64, dtype="<f4", shape=(10, 2))
    assert fresh.prepare(
        job(train=ArrayData(columns={"a.b": moved}, inputs=("a.b",))), resume="auto"
    )


def test_the_shape_of_arrays_is_compared(fresh: RunDirectory) -> None:
    begin(fresh, job())
    longer = ArrayRef(fd=3, dtype="<f4", shape=(11, 2))
    with pytest.raises(RunDirectoryError, match=r"train\.columns\.a\.b\.shape: \[10, 2\] -> \[11"):
        fresh.prepare(job(train=ArrayData(columns={"a.b": longer}, inputs=("a.b",))), "auto")


@pytest.mark.parametrize("resume", ["always", True])
def test_there_must_be_a_run_to_resume(fresh: RunDirectory, resume: Any) -> None:
    with pytest.raises(RunDirectoryError, match="holds no run to resume"):
        fresh.prepare(SETTINGS, resume)
    assert not fresh.path.exists()


@pytest.mark.parametrize("resume", ["never", False])
def test_a_run_is_not_overwritten(fresh: RunDirectory, resume: Any) -> None:
    assert fresh.prepare(SETTINGS, resume) is False
    with pytest.raises(RunDirectoryError, match="holds run 'a'; choose another run_dir or resume"):
        fresh.prepare(SETTINGS, resume)


def test_a_directory_of_something_else_is_left_alone(fresh: RunDirectory) -> None:
    fresh.path.mkdir(parents=True)
    (fresh.path / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match=r"not a run directory: it holds 'thesis\.tex'"):
        fresh.prepare(SETTINGS, "auto")
    assert entries(fresh.path) == ["thesis.tex"]


def test_an_empty_directory_is_fine(fresh: RunDirectory) -> None:
    fresh.path.mkdir(parents=True)
    assert fresh.prepare(SETTINGS, "auto") is False


def test_what_a_killed_process_left_is_fine(fresh: RunDirectory) -> None:
    fresh.code.mkdir(parents=True)
    (fresh.path / ".lock").touch()
    (fresh.path / ".job.yaml.0123.tmp").touch()
    assert fresh.prepare(SETTINGS, "auto") is False


def test_packed_code_may_be_there_before_the_settings(fresh: RunDirectory) -> None:
    fresh.code.mkdir(parents=True)
    (fresh.code / "index.json").write_text("{}")
    assert fresh.prepare(SETTINGS, "auto") is False


def test_code_of_something_else_is_foreign(fresh: RunDirectory) -> None:
    fresh.code.mkdir(parents=True)
    (fresh.code / "main.py").touch()
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        fresh.prepare(SETTINGS, "auto")


def test_a_file_in_its_place(fresh: RunDirectory) -> None:
    fresh.path.parent.mkdir()
    fresh.path.touch()
    with pytest.raises(RunDirectoryError, match="is a file"):
        fresh.prepare(SETTINGS, "auto")


def test_a_file_in_place_of_its_parent(fresh: RunDirectory) -> None:
    fresh.path.parent.touch()
    with pytest.raises(RunDirectoryError, match="a file is in its place"):
        fresh.prepare(SETTINGS, "auto")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "no space is left"),
        (errno.EACCES, "no permission"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_disk_that_refuses_is_explained_and_nothing_is_left(
    fresh: RunDirectory, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunDirectoryError, match=f"cannot use .*a as a run directory: .*{reason}"):
        fresh.prepare(SETTINGS, "auto")
    assert not fresh.path.exists()


def test_a_disk_that_refuses_keeps_the_settings_of_before(
    fresh: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.prepare(SETTINGS, "auto")

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    before = entries(fresh.path)
    with pytest.raises(RunDirectoryError):
        fresh.prepare(SETTINGS | {"epochs": 2}, "auto")
    assert entries(fresh.path) == before
    assert yaml.safe_load(fresh.job_file.read_text()) == SETTINGS


def test_settings_that_are_not_plain_are_refused(fresh: RunDirectory) -> None:
    with pytest.raises(RunDirectoryError, match="plain values"):
        fresh.prepare({"model": object()}, "auto")
    assert not fresh.path.exists()


@pytest.mark.parametrize("content", ["[", "3"])
def test_damaged_settings_are_an_error_that_names_the_file(
    fresh: RunDirectory, content: str
) -> None:
    begin(fresh, SETTINGS)
    fresh.job_file.write_text(content)
    with pytest.raises(RunDirectoryError, match=r"job\.yaml"):
        fresh.prepare(SETTINGS, "auto")


HOLDER = """
import sys
from flambeau.checkpoint import RunDirectory
with RunDirectory(sys.argv[1]).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(fresh: RunDirectory) -> Any:
    """Another process that holds the lock."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, str(fresh.path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_second_process_is_kept_out(fresh: RunDirectory, holder: Any) -> None:
    with pytest.raises(RunDirectoryError, match=f"in use by process {holder.pid} on"), fresh.lock():
        pass


def test_a_released_lock_leaves_no_file(fresh: RunDirectory, holder: Any) -> None:
    holder.communicate()
    assert entries(fresh.path) == []


def test_the_lock_of_a_killed_process_does_not_block(fresh: RunDirectory, holder: Any) -> None:
    holder.kill()
    holder.wait()
    assert entries(fresh.path) == [".lock"]
    with fresh.lock():
        pass
    assert entries(fresh.path) == []


def test_a_locked_directory_can_be_prepared(fresh: RunDirectory) -> None:
    with fresh.lock():
        assert fresh.prepare(SETTINGS, "auto") is False


def test_a_lock_can_be_taken_again(fresh: RunDirectory) -> None:
    for _ in range(2):
        with fresh.lock():
            pass


def test_a_lock_where_there_is_a_file_is_explained(fresh: RunDirectory) -> None:
    fresh.path.parent.mkdir()
    fresh.path.touch()
    with pytest.raises(RunDirectoryError, match="a file is in its place"), fresh.lock():
        pass


def test_the_driver_side_does_not_load_torch() -> None:
    modules = "run_directory, manifest, user_code, references, retention"
    code = f"import sys; from flambeau.checkpoint import {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.prepare({"epochs": 1}, "auto")
    for name in (".best.json.0a1b2c3d.tmp", ".report.json.deadbeef.tmp"):
        (run.path / name).write_text("{")
    (run.path / "notes.tmp").touch()
    run.remove_leftovers()
    assert [path.name for path in run.path.glob("*.tmp")] == ["notes.tmp"]
    assert not list(run.path.glob(".*.tmp"))
