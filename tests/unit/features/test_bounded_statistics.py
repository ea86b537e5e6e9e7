"""Statistics that exceed their memory: finished from files in pieces, with the same result."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau.features as ft
from flambeau.features.digest import digest_of
from flambeau.features.statistics.disjoint_tables import disjoint_tables
from flambeau.features.statistics.partial_files import Gathering, finish_files
from flambeau.features.statistics.partial_tables import PartialTables
from flambeau.features.statistics.quantiles import QuantileEdges
from flambeau.features.statistics.sorted_tables import SortedTables
from flambeau.features.statistics.statistic import Statistic, Workspace
from flambeau.features.statistics.target_means import TargetMeans
from flambeau.features.statistics.typical_value import TypicalValue
from flambeau.features.statistics.value_counts import ValueCounts, added, counted
from flambeau.features.stored_state import StoredState, batches_of, rows_of, schema_of, write_pieces

#: So little that a table of some hundred rows is divided, and that there are many sorted runs.
LITTLE = 4000
ROWS = 3000


def columns(kind: str) -> pa.Array:
    """Values of a type, some of them frequent, some missing."""
    rng = np.random.default_rng(0)
    numbers = np.where(
        rng.random(ROWS) < 0.5, rng.zipf(1.5, ROWS), rng.integers(-(2**55), 2**55, ROWS)
    )
    numbers = numbers.astype(np.int64)
    missing = rng.random(ROWS) < 0.05
    if kind == "text":
        return pa.array([f"é{x}" if x % 3 else f"{x}" for x in numbers], mask=missing)
    if kind == "float":
        floats = np.where(rng.random(ROWS) < 0.1, np.nan, numbers / 1000)
        floats[:7] = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.0, -0.0]
        return pa.array(floats, mask=missing)
    types = {"time": pa.timestamp("us"), "unsigned": pa.uint64(), "integer": pa.int64()}
    return pa.array(numbers, mask=missing).view(types[kind])


def gathered(statistic: Statistic, table: Mapping[str, pa.Array], folder: Path) -> list[Path]:
    """Partial tables in several files, as several processes write them."""
    files = []
    for number in range(6):
        gathering = Gathering(statistic, folder, f"{number}")
        rows = {name: each.slice(number * ROWS // 6, ROWS // 6) for name, each in table.items()}
        gathering.accumulator.add(rows, number)
        gathering.spill()
        files += gathering.files
    return files


def in_memory(statistic: Statistic, table: Mapping[str, pa.Array], folder: Path) -> pa.Table:
    gathering = Gathering(statistic, folder, "whole")
    for number in range(6):
        rows = {name: each.slice(number * ROWS // 6, ROWS // 6) for name, each in table.items()}
        gathering.accumulator.add(rows, number)
    return gathering.finish()


def same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether tables are equal, NaN being equal to NaN."""
    return one.schema == other.schema and repr(one.to_pydict()) == repr(other.to_pydict())


@pytest.mark.parametrize("kind", ["text", "integer", "float", "time", "unsigned"])
@pytest.mark.parametrize(
    "statistic",
    [
        ValueCounts(("x",)),
        ValueCounts(("x",), min_count=2),
        ValueCounts(("x",), max_size=40),
        ValueCounts(("x",), min_count=2, max_size=3000),
    ],
    ids=["all", "frequent", "most_frequent", "both"],
)
def test_counts_are_the_same_with_little_memory(
    kind: str, statistic: ValueCounts, tmp_path: Path
) -> None:
    table = {"x": columns(kind)}
    files = gathered(statistic, table, tmp_path)
    expected = in_memory(statistic, table, tmp_path)
    assert len(expected) > 20
    assert same(finish_files(statistic, files, LITTLE), expected)
    assert same(finish_files(statistic, files), expected)
    assert sorted(tmp_path.iterdir()) == sorted(files)  # nothing is left behind


@pytest.mark.parametrize("kind", ["integer", "float"])
def test_quantiles_and_medians_are_the_same_with_little_memory(kind: str, tmp_path: Path) -> None:
    table = {"x": columns(kind)}
    known = [x for x in table["x"].to_pylist() if x is not None and x == x]
    for statistic in (
        QuantileEdges(("x",), 7),
        TypicalValue(("x",), table["x"].type, "median"),
        TypicalValue(("x",), table["x"].type, "most_frequent"),
    ):
        folder = tmp_path / f"{statistic.__class__.__name__}{getattr(statistic, 'strategy', '')}"
        folder.mkdir()
        files = gathered(statistic, table, folder)
        expected = in_memory(statistic, table, folder)
        assert finish_files(statistic, files, LITTLE).equals(expected)
        if isinstance(statistic, QuantileEdges):
            cuts = [sorted(known)[len(known) * part // 7] for part in range(1, 7)]
            assert expected["edge"].to_pylist() == sorted({x for x in cuts if x > min(known)})


def test_target_means_are_the_same_with_little_memory(tmp_path: Path) -> None:
    table = {"x": columns("text"), "y": pa.array(np.random.default_rng(1).random(ROWS))}
    statistic = TargetMeans(("x", "y"), 3)
    files = gathered(statistic, table, tmp_path)
    found = finish_files(statistic, files, LITTLE)
    assert found.equals(in_memory(statistic, table, tmp_path))
    assert found["value"].to_pylist() == [*sorted(set(table["x"].to_pylist()) - {None}), None]


def test_tables_that_exceed_the_memory_become_several_without_common_values(tmp_path: Path) -> None:
    statistic = ValueCounts(("x",))
    partials = PartialTables(gathered(statistic, {"x": columns("integer")}, tmp_path))
    tables = list(counted(partials, Workspace(tmp_path, LITTLE)))
    assert len(tables) > 2 * len(partials.partitions)
    assert max(table.nbytes for table in tables) < LITTLE
    values = [value for table in tables for value in table["value"].to_pylist()]
    assert len(values) == len(set(values))


def test_one_value_that_is_everywhere_is_counted_with_little_memory(tmp_path: Path) -> None:
    tables = (pa.table({"value": ["a"] * 100, "count": [2] * 100}) for _ in range(50))
    (found,) = disjoint_tables(tables, added, Workspace(tmp_path, LITTLE))
    assert found.to_pydict() == {"value": ["a"], "count": [10_000]}


def test_sorted_tables_come_in_pieces_of_bounded_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    order = (("count", "descending"), ("value", "ascending"))
    schema = pa.schema({"value": pa.int64(), "count": pa.int64()})
    found = SortedTables(order, schema, Workspace(tmp_path, 1 << 16))
    whole = {"value": rng.permutation(20_000), "count": rng.integers(0, 50, 20_000)}
    for first in range(0, 20_000, 1000):
        found.add(
            pa.table({name: each[first : first + 1000] for name, each in whole.items()}, schema)
        )
    pieces = list(found.merged())
    assert max(piece.nbytes for piece in pieces) < 1 << 16
    expected = pa.table(whole, schema).sort_by(list(order))
    assert pa.concat_tables(pieces).combine_chunks().equals(expected.combine_chunks())
    assert not list(tmp_path.iterdir())


def test_a_table_in_a_file_is_read_in_pieces_and_has_the_same_digest(tmp_path: Path) -> None:
    rows = 150_003  # the pieces have odd numbers of rows
    texts = pa.array([None if x % 7 == 0 else f"é{x}" for x in range(rows)])
    table = pa.table(
        {"value": texts, "l": [[x] * (x % 3) for x in range(rows)], "n": np.arange(rows)}
    )
    pieces = (table.slice(first, 1001) for first in range(0, rows, 1001))
    write_pieces(pieces, table.schema, tmp_path / "table")
    groups = pq.ParquetFile(tmp_path / "table").metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [
        65536,
        65536,
        18931,
    ]
    state = StoredState({"x": tmp_path / "table"})
    assert rows_of(state, "x") == rows
    assert schema_of(state, "x").equals(table.schema)
    assert len(list(batches_of(state, "x"))) == 3
    assert state["x"].equals(table)
    assert digest_of([], [state]) == digest_of([], [{"x": table}])
    assert digest_of([], [state]) != digest_of([], [{"x": table.slice(1)}])


def test_digests_are_those_of_earlier_versions() -> None:
    """Runs that were trained before have recorded them."""
    data: dict[str, Any] = {
        "t": ["a", None, "é", "", "a", "zz"] * 3,
        "l": [["a", "b"], [], None, ["c"], ["a"], ["d"]] * 3,
        "f": pa.array([1.5, None, float("nan"), -0.0, 2.0, 7.0] * 3),
        "b": [True, False, None] * 6,
    }
    tables = {"one": pa.table(data), "two": pa.table(data).slice(3, 4)}
    assert digest_of([], [tables, {}]) == "3d1f865001c14bf26798c14c55807d88"


def test_a_pipeline_saves_and_loads_tables_that_stay_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"x": columns("text"), "y": columns("integer")}
    pipeline = ft.Pipeline([ft.Categorify(["x", "y"]), ft.CountEncode("y", out="z")]).fit(data)
    pipeline.save(tmp_path / "one")
    monkeypatch.setattr("flambeau.features.saved._HELD_BYTES", 0)
    stored = ft.Pipeline.load(tmp_path / "one")
    assert stored.states_ is not None
    assert isinstance(stored.states_[0], StoredState)
    assert stored.digest == pipeline.digest
    assert stored.sizes_ == pipeline.sizes_
    assert stored.transform(data).equals(pipeline.transform(data))
    stored.save(tmp_path / "two")
    again = ft.Pipeline.load(tmp_path / "two")
    assert again.digest == pipeline.digest
    stored.save(tmp_path / "one")  # over the files that it reads
    assert stored.digest == pipeline.digest
