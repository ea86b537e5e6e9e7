import os
from pathlib import Path

import numba
import pytest

from flambeau.kernels import compiled


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private folder, on a machine where nothing else can be written."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    return tmp_path / f"flambeau-kernels-{os.getuid()}"


def test_where_nothing_can_be_written_kernels_are_kept_in_a_private_folder(folder: Path) -> None:
    compiled.cache_somewhere()
    assert Path(numba.config.CACHE_DIR) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    compiled.cache_somewhere()
    used = Path(numba.config.CACHE_DIR)
    assert used != folder
    assert used.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    compiled.cache_somewhere()
    assert Path(numba.config.CACHE_DIR) != folder


def test_a_folder_that_the_user_has_named_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "/mine")
    compiled.cache_somewhere()
    assert numba.config.CACHE_DIR == "/mine"


def test_otherwise_numba_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    compiled.cache_somewhere()
    assert numba.config.CACHE_DIR == ""
