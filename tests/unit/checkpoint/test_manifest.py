"""The manifest is the commit, and knows when it is damaged."""

import json
import math
import zlib
from pathlib import Path

import pytest

from flambeau.checkpoint.manifest import MANIFEST, FileEntry, Manifest, TableEntry
from flambeau.errors import CheckpointError


def manifest() -> Manifest:
    return Manifest(
        step=10,
        epoch=1,
        workers=4,
        time=12.5,
        metrics={"loss": 0.25, "auc": math.inf},
        state={"dict": [["seed", 2**127]]},
        files={"dense.safetensors": FileEntry(size=8, crc32=1)},
    )


def test_it_reads_back_equal(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    assert Manifest.read(tmp_path) == manifest()


def test_its_tables_read_back_equal(tmp_path: Path) -> None:
    layers = [["table-item-0.safetensors"], ["../step-00000005/table-item-0.safetensors"]]
    entry = TableEntry(spec={"name": "item", "dim": 4}, layers=layers)
    written = manifest().model_copy(update={"tables": {"item": entry}})
    written.write(tmp_path)
    assert Manifest.read(tmp_path) == written
    assert written.bases == {"step-00000005"}


def test_one_from_before_there_were_tables_has_none(tmp_path: Path) -> None:
    values = manifest().model_dump(exclude={"tables"}) | {"metrics": {"loss": 0.25}}
    checksum = zlib.crc32(json.dumps(values, sort_keys=True).encode())
    (tmp_path / MANIFEST).write_text(json.dumps(values | {"crc32": checksum}))
    assert Manifest.read(tmp_path).tables == {}


def test_metrics_that_are_not_numbers_survive(tmp_path: Path) -> None:
    spoiled = manifest().model_copy(update={"metrics": {"loss": math.nan}})
    spoiled.write(tmp_path)
    assert math.isnan(Manifest.read(tmp_path).metrics["loss"])


def test_without_one_a_directory_is_not_committed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not committed"):
        Manifest.read(tmp_path)


def test_a_later_version_is_refused_by_number(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"format_version": 99}))
    with pytest.raises(CheckpointError, match="format version 99"):
        Manifest.read(tmp_path)


def test_a_changed_value_is_noticed(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    path = tmp_path / MANIFEST
    path.write_text(path.read_text().replace('"step": 10', '"step": 11'))
    with pytest.raises(CheckpointError, match="checksum"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000])
def test_garbage_is_a_checkpoint_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(CheckpointError, match=MANIFEST):
        Manifest.read(tmp_path)
