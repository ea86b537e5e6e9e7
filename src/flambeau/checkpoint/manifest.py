"""The manifest of a checkpoint: it is written last and commits the checkpoint."""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

from pydantic import Field

from flambeau.checkpoint.durable import write_atomically
from flambeau.config import Settings
from flambeau.errors import CheckpointError, ConfigError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@final
class FileEntry(Settings):
    """Expected size of a file in bytes, and the CRC-32 of its content."""

    size: int
    crc32: int


@final
class TableEntry(Settings):
    """A table: its `TableSpec` as JSON, and the files of its rows.

    Each of `layers` names one file per shard, relative to the checkpoint's own directory. The first
    layer is the newest; each holds what changed since the next one.
    """

    spec: dict[str, Any]
    layers: list[list[str]]


@final
class Manifest(Settings):
    """Contents of a checkpoint. `state` is the JSON part of a tree (see `tree`).

    `best` names the metric by which the checkpoint was the best of its run when it was written.
    """

    format_version: int = FORMAT_VERSION
    step: int
    epoch: int
    workers: int
    time: float
    metrics: dict[str, float]
    best: str | None = None
    state: Any
    files: dict[str, FileEntry]
    tables: dict[str, TableEntry] = Field(default_factory=dict)

    @property
    def bases(self) -> set[str]:
        """Names of other checkpoints of the run that hold table rows of this one."""
        paths = (path for table in self.tables.values() for layer in table.layers for path in layer)
        return {Path(path).parent.name for path in paths} - {""}

    def write(self, directory: Path) -> None:
        """Commit the checkpoint in `directory`, whose other files are complete."""
        values = self.model_dump() | {"metrics": metrics_as_json(self.metrics)}
        text = json.dumps(values | {"crc32": checksum_of(values)}, indent=1, allow_nan=False)
        write_atomically(directory / MANIFEST, text.encode())

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the manifest of a committed checkpoint; raise `CheckpointError` if it is unsound."""
        path = directory / MANIFEST
        values = _load(path)
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format version {version}, this Flambeau reads {FORMAT_VERSION}; "
                "use the Flambeau that wrote it"
            )
        if values.pop("crc32", None) != checksum_of(values):
            raise CheckpointError(f"{path} is corrupt: its checksum is wrong")
        try:
            return cls.parse(values)
        except ConfigError as error:
            raise CheckpointError(f"{path} is corrupt: {error}") from error


def damage(directory: Path) -> str | None:
    """Return what is wrong with a manifest, or None if it is sound or does not exist."""
    path = directory / MANIFEST
    if not path.exists():
        return None
    try:
        Manifest.read(directory)
    except CheckpointError as error:
        return str(error) if path.exists() else None  # it may have been removed meanwhile
    return None


def metrics_as_json(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics with `nan` and `inf`, which JSON lacks, as text; `float` parses both."""
    return {
        name: value if math.isfinite(value) else str(float(value))
        for name, value in metrics.items()
    }


def _load(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not committed: it has no {path.name}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is corrupt or truncated: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} is corrupt: not an object")
    return values


def checksum_of(values: Mapping[str, Any]) -> int:
    """Return the CRC-32 of the values, independent of the formatting of the file."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
