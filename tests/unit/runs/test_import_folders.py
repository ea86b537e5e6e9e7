import sys
from pathlib import Path

import pytest

from flambeau.runs import import_folders


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_the_folder_of_the_script_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    sys.path.insert(0, str(tmp_path / "jobs"))
    monkeypatch.chdir(tmp_path)
    import_folders.remember(tmp_path)
    sys.path[:] = before
    import_folders.use(tmp_path)
    assert sys.path == [*before, str(tmp_path / "jobs"), str(tmp_path)]


def test_using_them_twice_adds_them_once(tmp_path: Path) -> None:
    import_folders.remember(tmp_path)
    import_folders.use(tmp_path)
    once = list(sys.path)
    import_folders.use(tmp_path)
    assert sys.path == once


def test_a_run_without_them_is_fine(tmp_path: Path) -> None:
    before = list(sys.path)
    import_folders.use(tmp_path)
    assert sys.path == before
