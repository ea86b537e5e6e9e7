"""Folders from which a run's own modules were imported, so that they are found later."""

import json
import os
import sys
from pathlib import Path

from flambeau.checkpoint.durable import write_atomically

FILE = "import_folders.json"


def remember(code: Path) -> None:
    """Save, beside a run's code, the folder of the script or job file and the current one."""
    folders = [os.path.abspath(sys.path[0]), os.getcwd()]
    write_atomically(code / FILE, json.dumps(list(dict.fromkeys(folders))).encode())


def use(code: Path) -> None:
    """Add the saved folders to the end of the import path."""
    if (code / FILE).is_file():
        folders = json.loads((code / FILE).read_bytes())
        sys.path.extend(folder for folder in folders if folder not in sys.path)
