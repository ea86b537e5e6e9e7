"""Small text files for tests of the readers of sparse text."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa

from flambeau.data.sources.text.text_source import TextSource


def write(path: Path, text: str | bytes) -> str:
    """A file of the text, packed if its name says so; gives its path."""
    data = text.encode() if isinstance(text, str) else text
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return str(path)


def rows_of(source: TextSource, *columns: str) -> list[dict[str, Any]]:
    """All rows as the shards give them."""
    names = columns or source.schema.names
    batches = [batch for shard in source.shards() for batch in source.read(shard, names)]
    return [row for batch in batches for row in batch.to_pylist()]


def bag(*items: tuple[float, ...]) -> list[dict[str, float]]:
    """A bag as `to_pylist` shows it: `(id, value, field)`, as far as given."""
    return [dict(zip(("id", "value", "field"), item, strict=False)) for item in items]
