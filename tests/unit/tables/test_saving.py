"""Tables of several shards in a checkpoint, and back with another number of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.checkpoint.tree import flatten, unflatten
from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import Capacity, MinCount, TableSpec
from flambeau.errors import CheckpointError, ModelError
from flambeau.tables.index.hashing import Ids, shards_of
from flambeau.tables.saved.saving import SavedTable, TablesSnapshot, restore_tables
from flambeau.tables.table import Table

ADAM = OptimizerSpec(name="adam", args={"lr": 0.1})
ALL = np.arange(-40, 200)
SEED = 3

Shards = list[list[Table]]
Dumps = list[dict[str, dict[str, Any]]]


def spec(name: str = "item", **changes: Any) -> TableSpec:
    return TableSpec(**{"name": name, "dim": 2, "optimizer": ADAM, **changes})


def make(specs: Sequence[TableSpec], shards: int) -> Shards:
    return [[Table(one, SEED, shards=shards) for one in specs] for _ in range(shards)]


def push(tables: Shards, ids: Ids, number: float) -> None:
    """The same gradient for every table, each shard with its own ids."""
    owners = shards_of(ids, len(tables))
    for shard, own in enumerate(tables):
        mine = ids[owners == shard]
        for table in own:
            table.push(mine, np.full((mine.size, 2), number, table.dtype))


def pull(tables: Shards, table: int = 0, *, training: bool = False) -> np.ndarray:
    out = np.empty((ALL.size, 2))
    owners = shards_of(ALL, len(tables))
    for shard, own in enumerate(tables):
        out[owners == shard] = own[table].pull(ALL[owners == shard], training=training)
    return out


def save(
    tables: Shards, directory: Path, *, incremental: bool = False, bases: Sequence[str] = ()
) -> Dumps:
    """Write a checkpoint; on top of those beside it, the newest first. Gives the dumps."""
    directory.mkdir()
    files: dict[str, FileEntry] = {}
    dumps: Dumps = []
    saved: list[list[SavedTable]] = []
    for shard, own in enumerate(tables):
        snapshot = TablesSnapshot(own, directory, shard, incremental=incremental)
        while not snapshot.written:
            snapshot.advance(7)
        more, names = snapshot.finish()
        files |= more
        saved.append(names)
        dumps.append(unflatten(*flatten(snapshot.dumps)))
    entries = {}
    for number, table in enumerate(tables[0]):
        names_of = [shard[number].file for shard in saved]
        layers = [names_of, *([f"../{base}/{name}" for name in names_of] for base in bases)]
        entries[table.spec.name] = TableEntry(
            spec=table.spec.model_dump(mode="json"), layers=layers
        )
    write_manifest(directory, files, entries)
    return dumps


def write_manifest(
    directory: Path, files: dict[str, FileEntry], tables: dict[str, TableEntry]
) -> None:
    Manifest(
        step=1, epoch=0, workers=1, time=0.0, metrics={}, state=None, files=files, tables=tables
    ).write(directory)


def restore(
    specs: Sequence[TableSpec], shards: int, checkpoint: Path, dumps: Dumps, **options: Any
) -> Shards:
    tables = make(specs, shards)
    for shard, own in enumerate(tables):
        breathe = options.get("breathe", lambda: None)
        restore_tables(own, checkpoint, shard, shards, dumps, breathe)
    return tables


def trained(specs: Sequence[TableSpec], shards: int = 1) -> Shards:
    tables = make(specs, shards)
    for number in range(6):
        push(tables, ALL[number :: number + 2], 1.0 + number)
    return tables


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16", "fp16"])
def test_rows_survive_one_then_two_then_three_shards(tmp_path, dtype: str) -> None:
    specs = [spec(dtype=dtype), spec("user", dtype=dtype)]
    tables = trained(specs)
    expected = pull(tables, 0), pull(tables, 1)
    for shards in (2, 3):
        folder = tmp_path / str(shards)
        tables = restore(specs, shards, folder, save(tables, folder))
        for number in (0, 1):
            np.testing.assert_array_equal(pull(tables, number), expected[number])


def test_training_goes_on_as_without_the_checkpoint(tmp_path) -> None:
    tables = trained([spec()])
    again = restore([spec()], 3, tmp_path / "one", save(tables, tmp_path / "one"))
    for one in (tables, again):
        push(one, ALL[::3], 0.25)
        push(one, ALL[1::2], 0.5)
    np.testing.assert_array_equal(pull(again, training=True), pull(tables, training=True))


def test_each_shard_takes_its_own_ids_only(tmp_path) -> None:
    tables = trained([spec()], 2)
    rows = sum(len(own[0]) for own in tables)
    again = restore([spec()], 3, tmp_path / "one", save(tables, tmp_path / "one"))
    assert sum(len(own[0]) for own in again) == rows
    for shard, own in enumerate(again):
        mine = ALL[shards_of(ALL, 3) == shard]
        assert len(own[0]) == (own[0].pull(mine, training=False) != 0).any(axis=1).sum()


def test_counters_are_for_all_shards_together(tmp_path) -> None:
    rare = spec(admission=MinCount(3, cells=1 << 18))
    tables = make([rare], 2)
    for _ in range(2):
        push(tables, ALL, 1.0)
    again = restore([rare], 3, tmp_path / "one", save(tables, tmp_path / "one"))
    assert sum(own[0].counters.rejected for own in again) == 2 * ALL.size
    push(again, ALL, 1.0)
    assert sum(own[0].counters.admitted for own in again) == ALL.size
    assert [own[0].steps for own in again] == [3, 3, 3]


def test_the_snapshot_is_the_moment_it_began(tmp_path) -> None:
    (own,) = tables = trained([spec(admission=MinCount(2, cells=1 << 12))])
    expected = pull(tables)
    snapshot = TablesSnapshot(own, tmp_path, 0, incremental=False)
    while not snapshot.written:
        snapshot.advance(5)
        push(tables, ALL[::4], -1.0)
    before = snapshot.dumps["item"]
    files, saved = snapshot.finish()
    entry = TableEntry(spec=own[0].spec.model_dump(mode="json"), layers=[[saved[0].file]])
    write_manifest(tmp_path, files, {"item": entry})
    again = restore([own[0].spec], 1, tmp_path, [{"item": before}])
    np.testing.assert_array_equal(pull(again), expected)
    assert again[0][0].steps == 6


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_rows_that_left_since_the_base_stay_away(tmp_path, shards: int) -> None:
    small = spec(eviction=Capacity(60))
    tables = make([small], 2)
    for own in tables:
        own[0].track_touched = True
    for start in range(0, 100, 20):
        push(tables, ALL[start : start + 20], 1.0)
    save(tables, tmp_path / "one")
    push(tables, ALL[100:140], 1.0)
    save(tables, tmp_path / "two", incremental=True, bases=["one"])
    push(tables, ALL[60:80], 1.0)  # some had left, and are back
    dumps = save(tables, tmp_path / "three", incremental=True, bases=["two", "one"])
    again = restore([small], shards, tmp_path / "three", dumps)
    np.testing.assert_array_equal(pull(again), pull(tables))
    assert sum(len(own[0]) for own in again) == sum(len(own[0]) for own in tables)


def test_what_is_not_tracked_is_saved_in_full(tmp_path) -> None:
    (own,) = trained([spec(), spec("user")])
    own[1].track_touched = True
    snapshot = TablesSnapshot(own, tmp_path, 0, incremental=True)
    while not snapshot.written:
        snapshot.advance(100)
    _, saved = snapshot.finish()
    assert [(table.name, table.full) for table in saved] == [("item", True), ("user", False)]


@pytest.mark.parametrize("other", ["sgd", "adamw", "ftrl", "adagrad"])
def test_with_another_optimizer_rows_stay_and_its_state_begins_anew(tmp_path, other: str) -> None:
    """FTRL and AdamW have as much state as Adam, but theirs is not Adam's."""
    changed = spec(optimizer=OptimizerSpec(name=other, args={"lr": 0.1}))
    tables = trained([spec()])
    again = restore([changed], 2, tmp_path / "one", save(tables, tmp_path / "one"))
    np.testing.assert_array_equal(pull(again), pull(tables))
    fresh = make([changed], 1)
    has_row = (pull(tables) != 0).any(axis=1)
    fresh[0][0].load(ALL[has_row], pull(tables)[has_row].astype(np.float32))
    fresh[0][0].steps = 6
    for one in (again, fresh):
        push(one, ALL[has_row], 0.5)
    np.testing.assert_array_equal(pull(again), pull(fresh))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 3}, "table 'item' has dim 3, but 2 in the checkpoint"),
        ({"dtype": "fp64"}, "table 'item' has dtype fp64, but fp32 in the checkpoint"),
    ],
)
def test_rows_of_another_kind_are_an_error_of_the_model(tmp_path, change, message) -> None:
    dumps = save(trained([spec()]), tmp_path / "one")
    with pytest.raises(ModelError, match=message):
        restore([spec(**change)], 1, tmp_path / "one", dumps)


def test_a_table_that_the_checkpoint_does_not_have_begins_empty(tmp_path) -> None:
    dumps = save(trained([spec()]), tmp_path / "one")
    again = restore([spec("user"), spec()], 2, tmp_path / "one", dumps)
    assert [len(own[0]) for own in again] == [0, 0]
    assert all(len(own[1]) for own in again)


def test_restoring_breathes_while_it_loads(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flambeau.tables.saved.saving.LOAD_ROWS", 10)
    tables = trained([spec()])
    breaths: list[int] = []
    dumps = save(tables, tmp_path / "one")
    restore([spec()], 1, tmp_path / "one", dumps, breathe=lambda: breaths.append(1))
    assert len(breaths) > -(-len(tables[0][0]) // 10)


def test_a_file_that_changed_on_the_disk_is_not_restored(tmp_path) -> None:
    dumps = save(trained([spec()]), tmp_path / "one")
    (file,) = (tmp_path / "one").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{file.name} is corrupt"):
        restore([spec()], 1, tmp_path / "one", dumps)


def test_an_abandoned_snapshot_leaves_no_files_and_frees_its_tables(tmp_path) -> None:
    (own,) = trained([spec(), spec("user")])
    snapshot = TablesSnapshot(own, tmp_path, 0, incremental=False)
    snapshot.advance(5)
    snapshot.abandon()
    assert list(tmp_path.iterdir()) == []
    for table in own:
        table.begin_snapshot().abandon()


def test_a_directory_that_is_not_there_is_an_error_that_frees_the_tables(tmp_path) -> None:
    (own,) = trained([spec()])
    with pytest.raises(FileNotFoundError, match="missing"):
        TablesSnapshot(own, tmp_path / "missing", 0, incremental=False)
    own[0].begin_snapshot().abandon()


def test_tables_without_rows_are_saved_too(tmp_path) -> None:
    again = restore([spec()], 3, tmp_path / "one", save(make([spec()], 2), tmp_path / "one"))
    assert [len(own[0]) for own in again] == [0, 0, 0]


steps = st.lists(
    st.tuples(st.sets(st.integers(0, 30), min_size=1), st.sampled_from(["full", "changes", ""])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(steps=steps, before=st.integers(1, 3), after=st.integers(1, 3))
def test_any_mix_of_full_and_incremental_snapshots_is_what_the_tables_hold(
    tmp_path_factory, steps, before: int, after: int
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    small = spec(eviction=Capacity(12))
    tables = make([small], before)
    base, last = "", ""
    dumps: Dumps = []
    expected = pull(tables)
    for number, (ids, kind) in enumerate([(set(), "full"), *steps]):
        for own in tables:
            own[0].track_touched = True
        push(tables, np.array(sorted(ids), np.int64), 1.0 + number)
        if kind:
            last = str(number)
            bases = [base] if kind == "changes" else []
            dumps = save(tables, folder / last, incremental=bool(bases), bases=bases)
            base, expected = (base if bases else last), pull(tables)
    again = restore([small], after, folder / last, dumps)
    np.testing.assert_array_equal(pull(again), expected)
