"""A run without a `run_dir` gets a directory that no other run has."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flambeau.checkpoint.new_run import claim_directory, new_run_directory
from flambeau.errors import RunDirectoryError


def test_a_directory_that_exists_is_not_given_again(tmp_path: Path) -> None:
    names = [claim_directory(tmp_path / "runs" / "net").name for _ in range(3)]
    assert names == ["net", "net-2", "net-3"]


def test_callers_at_the_same_time_get_different_directories(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        claimed = list(threads.map(claim_directory, [tmp_path / "runs" / "net"] * 50))
    assert len(set(claimed)) == 50


def test_two_runs_in_one_second_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = new_run_directory("net").path, new_run_directory("net").path
    assert first != second
    assert first.parent == second.parent == Path("runs")


def test_a_file_in_place_of_the_folder_of_runs_is_explained(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(RunDirectoryError, match="a file is in its place"):
        claim_directory(tmp_path / "runs" / "net")
