"""Which files of a project go to hosts."""

import os
from pathlib import Path

import pytest

from flambeau.clusters.ssh.project_files import all_files, find_files
from flambeau.errors import ConfigError


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    return folder


def test_what_is_made_anew_stays_here(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "src/b.py", ".git/config", "src/__pycache__/b.pyc", ".cache/x")
    found = find_files(tmp_path)
    assert found.paths == ("a.py", "src", "src/b.py")
    assert (found.files, found.bytes) == (2, 10)


def test_runs_stay_here_wherever_they_are_but_not_all_folders_of_that_name(tmp_path: Path) -> None:
    make(tmp_path, "runs/first/job.yaml", "src/runs/code.py", "examples/job.yaml")
    make(tmp_path, "other/run/job.yaml", "other/run/events.jsonl")
    assert find_files(tmp_path).paths == (
        *("examples", "examples/job.yaml", "other", "src", "src/runs", "src/runs/code.py"),
    )


def test_virtual_environments_stay_here_by_whatever_name(tmp_path: Path) -> None:
    make(tmp_path, "env/pyvenv.cfg", "env/lib/a.py", "conda/conda-meta/history", "a.py")
    assert find_files(tmp_path).paths == ("a.py",)


def test_patterns_of_the_user(tmp_path: Path) -> None:
    make(tmp_path, "data/a.bin", "src/data/b.bin", "src/c.txt", "d.log")
    assert find_files(tmp_path, ["/data/", "*.log"]).paths == (
        *("src", "src/c.txt", "src/data", "src/data/b.bin"),
    )
    assert find_files(tmp_path, ["data", "*.log"]).paths == ("src", "src/c.txt")
    with pytest.raises(ConfigError, match="--exclude 'src/data': give a name or pattern"):
        find_files(tmp_path, ["src/data"])


def test_links_stay_links_and_other_kinds_of_files_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "folder/a.py")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    found = find_files(tmp_path)
    assert found.paths == ("broken", "folder", "folder/a.py", "link")
    assert found.files == 1


def test_an_environment_goes_as_a_whole(tmp_path: Path) -> None:
    make(tmp_path, "pyvenv.cfg", "lib/__pycache__/a.pyc", ".flambeau-shared-1")
    assert all_files(tmp_path).paths == (
        *("lib", "lib/__pycache__", "lib/__pycache__/a.pyc", "pyvenv.cfg"),
    )
