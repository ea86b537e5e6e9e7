"""Files of features that a pipeline has prepared, as far as others need to know them."""

import json
from pathlib import Path
from typing import Any

from flambeau.config import FileData

#: The file of a prepared folder that says what it holds.
PREPARED = "prepared.json"


def prepared_folder(data: Any) -> Path | None:
    """Return the prepared folder that files are in; None if there is none."""
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
    """Return the digest of the pipeline that has prepared some files; None if none has."""
    folder = prepared_folder(data)
    if folder is None:
        return None
    digest: str = json.loads((folder / PREPARED).read_bytes())["pipeline"]
    return digest
