"""A copy of the files of an earlier version, for a test to open and to continue."""

import os
import shutil
import stat
from pathlib import Path

SAVED = Path(__file__).parent


def copy_saved(folder: Path) -> Path:
    """Copy everything into `folder`, writable by its owner only."""
    shutil.copytree(SAVED, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py"))
    for path in (folder, *folder.rglob("*")):
        os.chmod(path, path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
    return folder
