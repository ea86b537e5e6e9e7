"""Files of tables: written in pieces, searched in place, laid over each other."""

import json
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.config.tables import Initializer, TableSpec
from flambeau.errors import CheckpointError
from flambeau.tables.index.hashing import shards_of
from flambeau.tables.precision import COMPUTED, narrow
from flambeau.tables.saved.mapped import MappedTable, open_tables
from flambeau.tables.saved.snapshot import Chunk
from flambeau.tables.saved.table_files import TableFile, TableFileWriter, table_file_name
from flambeau.tables.saved.table_slots import MOST_ROWS

EXTREMES = [-(2**63), 2**63 - 1, 0, -1]
DIM = 3
DTYPES = ["fp32", "fp64", "bf16", "fp16"]

Rows = dict[int, float]


def spec(**changes: Any) -> TableSpec:
    fields: dict[str, Any] = {"name": "item", "dim": DIM, **changes}
    return TableSpec(**fields)


def chunk(rows: Rows, dtype: str = "fp32", width: int = 2, *, seen: bool = False) -> Chunk:
    """Rows whose values all are the given number, and whose state is twice that."""
    ids = np.array(list(rows), np.int64)
    column = np.array(list(rows.values()), COMPUTED[dtype])[:, None]
    values, state = narrow(np.tile(column, (1, DIM)), dtype), np.tile(2 * column, (1, width))
    return Chunk(ids, values, state, np.arange(ids.size, dtype=np.uint32) if seen else None)


def write(path: Path, rows: Rows, removed: list[int] | None = None) -> FileEntry:
    gone = None if removed is None else np.array(removed, np.int64)
    writer = TableFileWriter(path, spec(), len(rows), 2, removed=gone)
    writer.append(chunk(rows))
    return writer.finish()


def layer(
    folder: Path, name: str, shards: int, rows: Rows, removed: list[int] | None = None
) -> list[TableFile]:
    """The rows as so many servers would write them."""

    def shard_of(id_: int) -> int:
        return int(shards_of(np.array([id_], np.int64), shards)[0])

    paths = [folder / f"{name}-{shard}" for shard in range(shards)]
    for shard, path in enumerate(paths):
        own = {id_: value for id_, value in rows.items() if shard_of(id_) == shard}
        gone = None if removed is None else [id_ for id_ in removed if shard_of(id_) == shard]
        write(path, own, gone)
    return [TableFile(path) for path in paths]


def as_dict(table: MappedTable, max_rows: int) -> Rows:
    found: Rows = {}
    for ids, values in table.chunks(max_rows):
        assert ids.size <= max_rows
        assert not found.keys() & set(ids.tolist()), "a row came twice"
        found |= dict(zip(ids.tolist(), values[:, 0].tolist(), strict=True))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_safetensors_library_reads_what_was_written_in_pieces(
    tmp_path: Path, dtype: str
) -> None:
    path = tmp_path / "t"
    removed = np.array([9, -9], np.int64)
    writer = TableFileWriter(path, spec(dtype=dtype), 3, 2, seen=True, removed=removed)
    writer.append(chunk({5: 0.5, 2**63 - 1: 1.5}, dtype, seen=True))
    writer.append(chunk({-(2**63): 2.5}, dtype, seen=True))
    writer.finish()
    tensors = load_file(path)
    names = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    assert tensors["ids"].tolist() == [5, 2**63 - 1, -(2**63)]
    assert tensors["values"].dtype == names.get(dtype, torch.float16)
    assert tensors["values"].tolist() == [[0.5] * DIM, [1.5] * DIM, [2.5] * DIM]
    assert tensors["state"].tolist() == [[1.0] * 2, [3.0] * 2, [5.0] * 2]
    assert tensors["seen"].tolist() == [0, 1, 0]
    assert tensors["removed"].tolist() == [-9, 9]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_chunks_of_a_file_are_the_rows_as_they_were_stored(tmp_path: Path, dtype: str) -> None:
    rows = {id_: id_ / 4 for id_ in range(10)}
    given_ = chunk(rows, dtype, seen=True)
    writer = TableFileWriter(tmp_path / "t", spec(dtype=dtype), 10, 2, seen=True)
    writer.append(given_)
    writer.finish()
    file = TableFile(tmp_path / "t")
    chunks = list(file.chunks(4))
    assert (file.rows, file.dim, file.dtype, file.state_width) == (10, DIM, dtype, 2)
    assert [part.ids.size for part in chunks] == [4, 4, 2]
    for name in ("ids", "values", "state", "seen"):
        together = np.concatenate([getattr(part, name) for part in chunks])
        np.testing.assert_array_equal(together, getattr(given_, name), strict=True)


def test_the_entry_is_the_size_and_checksum_of_the_file(tmp_path: Path) -> None:
    entry = write(tmp_path / "t", {1: 1.0, 2: 2.0})
    content = (tmp_path / "t").read_bytes()
    assert entry == FileEntry(size=len(content), crc32=zlib.crc32(content))


def test_a_table_without_rows_and_without_state_has_a_file(tmp_path: Path) -> None:
    TableFileWriter(tmp_path / "t", spec(), 0, 0).finish()
    file = TableFile(tmp_path / "t")
    assert file.find(np.array(EXTREMES)).tolist() == [-1] * 4
    assert list(file.chunks(5)) == []
    assert load_file(tmp_path / "t")["state"].shape == (0, 0)


@given(
    st.lists(st.one_of(st.sampled_from(EXTREMES), st.integers(-40, 40)), unique=True, max_size=60)
)
def test_exactly_the_ids_that_were_written_are_found(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int]
) -> None:
    path = tmp_path_factory.mktemp("found") / "t"
    write(path, dict.fromkeys(ids, 0.0))
    wanted = [*EXTREMES, *range(-50, 50)]
    positions = TableFile(path).find(np.array(wanted))
    expected = [ids.index(id_) if id_ in ids else -1 for id_ in wanted]
    assert positions.tolist() == expected


def test_it_may_be_finished_by_another_thread(tmp_path: Path) -> None:
    writer = TableFileWriter(tmp_path / "t", spec(), 1, 2)
    writer.append(chunk({7: 1.0}))
    with ThreadPoolExecutor(1) as thread:
        entry = thread.submit(writer.finish).result()
    TableFile(tmp_path / "t").verify(entry, lambda: None)


def test_a_file_before_finish_is_no_table(tmp_path: Path) -> None:
    writer = TableFileWriter(tmp_path / "t", spec(), 1, 2)
    writer.append(chunk({7: 1.0}))
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        TableFile(tmp_path / "t")
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_missing_rows_are_noticed_at_the_end(tmp_path: Path) -> None:
    writer = TableFileWriter(tmp_path / "t", spec(), 2, 2)
    writer.append(chunk({7: 1.0}))
    with pytest.raises(CheckpointError, match="got 1 rows instead of 2"):
        writer.finish()
    writer.abandon()


def test_too_many_rows_for_the_index_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="use more servers"):
        TableFileWriter(tmp_path / "t", spec(), MOST_ROWS + 1, 2)


def test_where_nothing_can_be_written_the_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no/t"):
        TableFileWriter(tmp_path / "no" / "t", spec(), 1, 2)


def test_a_full_disk_while_appending_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    writer = TableFileWriter(tmp_path / "t", spec(), 1, 2)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as caught:
        writer.append(chunk({7: 1.0}))
    assert caught.value.filename == str(tmp_path / "t")
    writer.abandon()


def test_a_new_file_leaves_the_old_one_to_those_who_read_it(tmp_path: Path) -> None:
    write(tmp_path / "t", {1: 1.0})
    old = TableFile(tmp_path / "t")
    write(tmp_path / "t", {2: 2.0, 3: 3.0})
    assert old.find(np.array([1, 2])).tolist() == [0, -1]
    assert TableFile(tmp_path / "t").rows == 2


def test_a_changed_byte_is_noticed_when_it_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "t"
    entry = write(path, {1: 1.0})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt"):
        TableFile(path, whole=0).verify(entry, lambda: None)


def changed_header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        stop = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:stop])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[stop:]

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: b"", "truncated: it ends within its header"),
        (lambda _: b"PAR1 is the beginning of something else", "not a safetensors file"),
        (lambda content: content[:30], "truncated: it ends within its header"),
        (lambda content: content[:-1], r"has \d+ bytes instead of \d+: it is truncated"),
        (lambda content: content + b"x", r"has \d+ bytes instead of \d+"),
        (lambda content: content[:8] + b"?" + content[9:], "header is damaged"),
        (changed_header(lambda h: h.update(other=h.pop("slots"))), "it has no tensor 'slots'"),
        (changed_header(lambda h: h["ids"].update(shape=[2, 1])), r"'ids' is I64 \[2, 1\]"),
        (changed_header(lambda h: h["values"].update(dtype="I32")), "'values' is I32"),
        (changed_header(lambda h: h["values"].update(shape=[3, 2])), r"\[3, 2\] for 2 ids"),
        (changed_header(lambda h: h["values"].update(shape=[2, -3])), "header is damaged"),
        (changed_header(lambda h: h["values"].update(dtype="BOOL")), "header is damaged"),
        (changed_header(lambda h: h["ids"].pop("shape")), "header is damaged"),
        (changed_header(lambda h: h.update(crc33=h.pop("crc32"))), "a tensor 'crc33'"),
        (changed_header(lambda h: h.update(__metadata__={})), "its header, bytes 0 to"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "table-item-0.safetensors"
    write(path, {1: 1.0, 2: 2.0})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=f"table-item-0.safetensors.*{message}"):
        TableFile(path)


@pytest.mark.parametrize("garbage", [2, 2**31 - 1, -2])
def test_slots_that_lead_nowhere_are_an_error(tmp_path: Path, garbage: int) -> None:
    path = tmp_path / "t"
    write(path, {1: 1.0, 2: 2.0})
    start = changed_start(path, "slots")
    content = bytearray(path.read_bytes())
    content[start : start + 20] = np.full(5, garbage, np.int32).tobytes()
    path.write_bytes(without_checksums(bytes(content)))
    with pytest.raises(CheckpointError, match="its index slots point outside the file"):
        TableFile(path).find(np.array([3]))


def test_slots_without_an_end_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, {1: 1.0, 2: 2.0})
    start = changed_start(path, "slots")
    content = bytearray(path.read_bytes())
    content[start : start + 20] = np.zeros(5, np.int32).tobytes()
    path.write_bytes(without_checksums(bytes(content)))
    with pytest.raises(CheckpointError, match="its index slots point outside the file"):
        TableFile(path).find(np.array([3]))


def without_checksums(content: bytes) -> bytes:
    """A file as it was written before there were checksums."""
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    start, stop = header.pop("crc32")["data_offsets"]
    for entry in header.values():
        entry["data_offsets"] = [place - stop + start for place in entry["data_offsets"]]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[begin + stop :]


def changed_start(path: Path, name: str) -> int:
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    return begin + int(json.loads(content[8:begin])[name]["data_offsets"][0])


def test_a_missing_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        TableFile(tmp_path / "no")


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_unknown_id_reads_as_the_default_row_as_it_would_be_stored(dtype: str) -> None:
    given_ = spec(dtype=dtype, initializer=Initializer(kind="constant", value=0.1))
    stored = torch.tensor(0.1, dtype=torch.float64)
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    expected = stored.to(kinds.get(dtype, torch.float64)).item()
    rows = MappedTable(given_, []).pull(np.array(EXTREMES))
    assert rows.tolist() == [[expected] * DIM] * 4
    assert rows.dtype == COMPUTED[dtype]


few_ids = st.integers(0, 12)
row_maps = st.dictionaries(few_ids, st.integers(1, 99).map(float), max_size=10)


@settings(max_examples=40)
@given(
    base=row_maps,
    changes=st.lists(st.tuples(row_maps, st.sets(few_ids), st.integers(1, 3)), max_size=3),
    shards=st.integers(1, 3),
    max_rows=st.integers(1, 5),
)
def test_layers_of_any_number_of_shards_are_one_dict(
    tmp_path_factory: pytest.TempPathFactory,
    base: Rows,
    changes: list[tuple[Rows, set[int], int]],
    shards: int,
    max_rows: int,
) -> None:
    folder = tmp_path_factory.mktemp("layers")
    layers, model = [layer(folder, "base", shards, base)], dict(base)
    for number, (rows, gone, count) in enumerate(changes):
        removed = sorted(gone - rows.keys())
        layers.insert(0, layer(folder, f"{number}", count, rows, removed))
        model = {id_: v for id_, v in model.items() if id_ not in removed} | rows
    table = MappedTable(spec(), layers)
    wanted = np.arange(-2, 15)
    expected = [[model.get(id_, 0.0)] * DIM for id_ in wanted.tolist()]
    assert table.pull(wanted).tolist() == expected
    assert table.has(wanted).tolist() == [id_ in model for id_ in wanted.tolist()]
    assert len(table) == len(model)
    assert as_dict(table, max_rows) == model


def test_repeated_ids_are_repeated_rows(tmp_path: Path) -> None:
    table = MappedTable(spec(), [layer(tmp_path, "t", 2, {1: 1.0, 2: 2.0})])
    assert table.pull(np.array([2, 1, 2, 2]))[:, 0].tolist() == [2.0, 1.0, 2.0, 2.0]


def test_a_layer_counts_all_its_rows(tmp_path: Path) -> None:
    old, new = {1: 1.0, 2: 2.0, 3: 3.0}, {1: 5.0}
    layers = [layer(tmp_path, "new", 1, new, [2]), layer(tmp_path, "old", 2, old)]
    table = MappedTable(spec(), layers)
    assert [table.rows_of_layer(0), table.rows_of_layer(1), len(table)] == [1, 3, 2]
    assert table.nbytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_file_of_another_shape_than_the_table_is_refused(tmp_path: Path) -> None:
    files = layer(tmp_path, "t", 1, {1: 1.0})
    with pytest.raises(CheckpointError, match="has rows of 3 fp32 numbers, but table 'item' of 4"):
        MappedTable(spec(dim=4), [files])


def committed(directory: Path, spec_: dict[str, Any], layers: list[list[str]]) -> Path:
    tables = {"item": TableEntry(spec=spec_, layers=layers)}
    Manifest(
        step=1, epoch=0, workers=1, time=0, metrics={}, state=None, files={}, tables=tables
    ).write(directory)
    return directory


def test_the_tables_of_a_checkpoint_open_with_their_bases(tmp_path: Path) -> None:
    old, new = tmp_path / "step-1", tmp_path / "step-2"
    old.mkdir()
    new.mkdir()
    name = table_file_name("item", 0)
    write(old / name, {1: 1.0, 2: 2.0})
    write(new / name, {1: 3.0}, [])
    committed(new, spec().model_dump(mode="json"), [[name], [f"../step-1/{name}"]])
    tables = open_tables(new)
    assert name == "table-item-0.safetensors"
    assert tables["item"].spec == spec()
    assert as_dict(tables["item"], 10) == {1: 3.0, 2: 2.0}


def test_files_without_checksums_open_with_a_warning(tmp_path: Path) -> None:
    name = table_file_name("item", 0)
    write(tmp_path / name, {1: 1.0, 2: 2.0})
    (tmp_path / name).write_bytes(without_checksums((tmp_path / name).read_bytes()))
    committed(tmp_path, spec().model_dump(mode="json"), [[name]])
    with pytest.warns(UserWarning, match="before table files had checksums.*damage to table item"):
        tables = open_tables(tmp_path)
    assert as_dict(tables["item"], 10) == {1: 1.0, 2: 2.0}


def test_a_spec_that_cannot_be_read_names_its_table(tmp_path: Path) -> None:
    committed(tmp_path, {"name": "item", "dim": 0}, [])
    with pytest.raises(CheckpointError, match="table 'item' cannot be read: dim=0"):
        open_tables(tmp_path)
