"""Detection of files of features that a pipeline has prepared."""

import json
from pathlib import Path
from typing import Any

from flambeau.config import FileData

#: File in a prepared folder that describes its content.
PREPARED = "prepared.json"


def prepared_folder(data: Any) -> Path | None:
    """Return the prepared folder that contains these files; None if there is none."""
    paths = data.path if isinstance(data, FileData) else data
    if not isinstance(paths, str | Path):
        paths = next(iter(paths), "") if isinstance(paths, list | tuple) else ""
    if not isinstance(paths, str | Path) or not str(paths):
        return None
    place = Path(paths)
    for folder in (place, *list(place.parents)[:2]):
        if (folder / PREPARED).is_file():
            return folder
    return None


def prepared_by(data: Any) -> str | None:
    """Return the digest of the pipeline that prepared these files; None if none did."""
    folder = prepared_folder(data)
    if folder is None:
        return None
    digest: str = json.loads((folder / PREPARED).read_bytes())["pipeline"]
    return digest
