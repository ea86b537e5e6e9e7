"""A folder of predictions: a file for each part of the data, and a manifest.

`_manifest.json` (programs that read folders of Parquet ignore names with an underscore) has the
checkpoint and the data, and lists the parts with their numbers of rows. A part's file gets its name
when it is complete, so after a crash all files are complete.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet

from flambeau.checkpoint.durable import TEMPORARY, write_atomically
from flambeau.coordination.payloads import Part
from flambeau.errors import ConfigError, DataError

MANIFEST = "_manifest.json"


@final
class PredictionsFolder:
    """The folder at `path`, for predictions described by `identity` (plain values)."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = dict(identity)

    def begin(self, parts: Sequence[Part]) -> list[Part]:
        """Create the folder, or resume in it; return the parts that do not exist yet."""
        manifest = self.path / MANIFEST
        if manifest.is_file() and not any(self.path.glob("part-*")):
            self._write(parts, complete=False)  # an earlier attempt has written no part
        elif manifest.is_file():
            self._require_same(_read(manifest))
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise ConfigError(
                f"out={self.path} is not empty, and holds no predictions; choose another folder"
            )
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(parts, complete=False)
        return [part for part in parts if not self._has(part)]

    def complete(self, parts: Sequence[Part]) -> int:
        """Record that all parts are complete; return the number of rows."""
        self._write(parts, complete=True)
        return sum(rows_of_file(self.path / part.file_name) for part in parts)

    def remove_partial(self) -> None:
        """Remove partial files that killed processes have left."""
        for left in self.path.glob(f".part-*{TEMPORARY}"):
            left.unlink(missing_ok=True)

    def rows_done(self, parts: Sequence[Part]) -> int:
        """Return the number of rows in existing parts."""
        there = [self.path / part.file_name for part in parts if self._has(part)]
        return sum(rows_of_file(path) for path in there)

    def _has(self, part: Part) -> bool:
        path = self.path / part.file_name
        return path.is_file() and part.rows in (None, rows_of_file(path))

    def _write(self, parts: Sequence[Part], *, complete: bool) -> None:
        entries = [{"file": part.file_name, "rows": part.rows} for part in parts]
        whole = {**self._identity, "complete": complete, "parts": entries}
        write_atomically(self.path / MANIFEST, json.dumps(whole, indent=1).encode())

    def _require_same(self, found: Mapping[str, Any]) -> None:
        for name, value in self._identity.items():
            if found.get(name) != value:
                raise ConfigError(
                    f"out={self.path} holds other predictions: {name} is "
                    f"{found.get(name)!r} there and {value!r} now; choose another folder, or "
                    "remove it"
                )


def rows_of_file(path: Path) -> int:
    """Return the number of rows of a file of predictions."""
    try:
        return int(pyarrow.parquet.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}; remove it, and predict again") from error


def _read(manifest: Path) -> dict[str, Any]:
    try:
        found = json.loads(manifest.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{manifest} cannot be read: {error}; remove the folder") from error
    if not isinstance(found, dict):
        raise DataError(f"{manifest} is not a valid manifest; remove the folder")
    return found
