"""Damage to table files is found before what was damaged is used."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.checkpoint.manifest import FileEntry
from flambeau.config.tables import TableSpec
from flambeau.errors import CheckpointError
from flambeau.inference.exported_tables import ExportedFile, write_table
from flambeau.tables.saved.checksums import BLOCK, block_sums, combined
from flambeau.tables.saved.snapshot import Chunk
from flambeau.tables.saved.table_files import TableFile, TableFileWriter

ROWS, DIM = 20_000, 5
SPEC = TableSpec(name="item", dim=DIM)
TENSORS = ["ids", "values", "state", "slots", "removed"]


def ids_of(rows: int) -> np.ndarray:
    return np.arange(rows, dtype=np.int64) * 3


def values_of(ids: np.ndarray) -> np.ndarray:
    return (ids[:, None] + np.arange(DIM)).astype(np.float32)


class Rows:
    """All ids have a row."""

    def pull(self, ids: Any) -> np.ndarray:
        return values_of(np.asarray(ids))

    def has(self, ids: Any) -> np.ndarray:
        return np.ones(len(ids), bool)


@pytest.fixture(scope="module")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file whose tensors have several blocks each, as the bytes in it."""
    path = tmp_path_factory.mktemp("table") / "t"
    ids = ids_of(ROWS)
    removed = np.arange(ROWS, dtype=np.int64) * 3 + 1
    writer = TableFileWriter(path, SPEC, ROWS, 2, removed=removed)
    writer.append(Chunk(ids, values_of(ids), np.ones((ROWS, 2), np.float32), None))
    entry = writer.finish()
    content = path.read_bytes()
    assert entry == FileEntry(size=len(content), crc32=zlib.crc32(content))
    return content


@pytest.fixture(scope="module")
def export_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("export") / "t"
    removed = np.arange(ROWS, dtype=np.int64) * 3 + 1
    entry = write_table(path, ids_of(ROWS), Rows(), "int8", removed)
    content = path.read_bytes()
    assert entry == FileEntry(size=len(content), crc32=zlib.crc32(content))
    return content


def damaged(content: bytes, tensor: str, place: float = 0.5) -> bytes:
    """The file with one flipped bit, so far into a tensor."""
    begin = 8 + int.from_bytes(content[:8], "little")
    start, stop = json.loads(content[8:begin])[tensor]["data_offsets"]
    changed = bytearray(content)
    changed[begin + start + int(place * (stop - start - 1))] ^= 4
    return bytes(changed)


@given(st.lists(st.binary(max_size=70)))
def test_the_checksum_of_a_whole_is_that_of_its_parts(parts: list[bytes]) -> None:
    assert combined((zlib.crc32(part), len(part)) for part in parts) == zlib.crc32(b"".join(parts))


def test_the_last_block_may_be_shorter() -> None:
    data = bytes(range(256)) * 300
    expected = [zlib.crc32(data[:BLOCK]), zlib.crc32(data[BLOCK:])]
    assert block_sums(memoryview(data)).tolist() == expected


@pytest.mark.parametrize("tensor", TENSORS)
def test_a_small_file_is_checked_whole_when_it_is_opened(
    tmp_path: Path, table_file: bytes, tensor: str
) -> None:
    path = tmp_path / "t"
    path.write_bytes(damaged(table_file, tensor))
    with pytest.raises(
        CheckpointError,
        match=rf"/t is corrupt: bytes \d+ to \d+, in '{tensor}'.*no other checkpoint",
    ):
        TableFile(path)


@pytest.mark.parametrize("tensor", ["ids", "values", "scales", "removed"])
def test_a_small_file_of_an_export_too(tmp_path: Path, export_file: bytes, tensor: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(damaged(export_file, tensor))
    with pytest.raises(
        CheckpointError, match=rf"/t is corrupt: bytes \d+ to \d+, in '{tensor}'.*export the run"
    ):
        ExportedFile(path)


def one(number: int) -> np.ndarray:
    return np.array([number], np.int64)


#: Where one flipped bit is, and what uses it: of the tensor of `place` 0.999, the last rows do.
USES: list[tuple[str, Callable[[TableFile], object]]] = [
    ("values", lambda file: file.take(one(ROWS - 1))),
    ("values", lambda file: file.take(slice(0, ROWS))),
    ("ids", lambda file: file.find(ids_of(ROWS)[-50:])),
    ("ids", lambda file: list(file.mentions(1000))),
    ("slots", lambda file: file.find(ids_of(ROWS))),
    ("state", lambda file: list(file.chunks(1000))),
    ("removed", lambda file: file.locate(one(3 * ROWS - 2))),
    ("removed", lambda file: file.removed),
]


@pytest.mark.parametrize(("tensor", "use"), USES)
def test_a_large_file_is_checked_where_it_is_used(
    tmp_path: Path, table_file: bytes, tensor: str, use: Callable[[TableFile], object]
) -> None:
    path = tmp_path / "t"
    path.write_bytes(damaged(table_file, tensor, 0.999))
    file = TableFile(path, whole=0)
    assert file.take(np.arange(10)).tolist() == values_of(ids_of(10)).tolist()  # other blocks
    for _ in range(2):  # an error does not make the block a sound one
        with pytest.raises(CheckpointError, match=f"in '{tensor}'"):
            use(file)


def test_a_large_file_without_damage_is_read_as_a_small_one(
    tmp_path: Path, table_file: bytes
) -> None:
    path = tmp_path / "t"
    path.write_bytes(table_file)
    file, wanted = TableFile(path, whole=0), np.arange(3 * ROWS, dtype=np.int64)
    found = file.locate(wanted)
    assert found.tolist() == TableFile(path).locate(wanted).tolist()
    there = found >= 0
    np.testing.assert_array_equal(file.take(found[there]), values_of(wanted[there]))


@pytest.mark.parametrize("tensor", ["ids", "values", "scales", "removed"])
def test_a_large_file_of_an_export_is_checked_where_it_is_used(
    tmp_path: Path, export_file: bytes, tensor: str
) -> None:
    path = tmp_path / "t"
    path.write_bytes(damaged(export_file, tensor, 0.999))
    file = ExportedFile(path, whole=0)
    if tensor not in ("ids", "removed"):
        places, _ = file.locate(one(0))
        assert file.take(places).tolist()[0] == pytest.approx([0, 1, 2, 3, 4], abs=0.1)
    with pytest.raises(CheckpointError, match=f"in '{tensor}'"):
        file.take(file.locate(np.array([3 * ROWS - 3, 3 * ROWS - 2]))[0][:1])


@given(st.sets(st.integers(-100, 100)), st.lists(st.integers(-110, 110)))
def test_ids_of_an_export_are_found(
    tmp_path_factory: pytest.TempPathFactory, ids: set[int], wanted: list[int]
) -> None:
    path = tmp_path_factory.mktemp("search") / "t"
    own = np.array(sorted(ids), np.int64)
    write_table(path, own, Rows(), "fp32", None)
    places, gone = ExportedFile(path, whole=0).locate(np.array(wanted, np.int64))
    ordered = own.tolist()
    assert places.tolist() == [ordered.index(i) if i in ids else -1 for i in wanted]
    assert not gone.any()
