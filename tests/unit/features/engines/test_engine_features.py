"""Pipelines on the data of an engine whose tasks run here."""

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau.features as ft
from flambeau.driver.parts import prepare as driver
from flambeau.errors import DataError
from flambeau.features.engines.engine_frame import EngineFrame, Work
from flambeau.features.engines.engine_work import MakeFeatures
from flambeau.features.engines.partial_statistics import fit_frame
from flambeau.features.engines.staged_rows import WRITTEN, WriteRows, stage_rows
from flambeau.features.operation import Operation
from flambeau.features.preparing.prepared import prepare_folder

FILES = {"pipeline", "prepared.json", "preparation.json", "statistics.json"}
OPERATIONS = (
    ft.FillMissing("price", strategy="mean"),
    ft.Normalize("price"),
    ft.Bucketize("price", quantiles=4, out="cheap"),
    ft.Categorify(["user", "tags", "cheap"], min_count=2),
    ft.CountEncode("user", out="often"),
)


class Partitions(EngineFrame):
    """A table in some partitions, which are given to tasks in any order."""

    name = "a table in partitions"
    writes = "table.write(...)"

    def __init__(self, table: pa.Table, partitions: int, seed: int = 0) -> None:
        self.schema = table.schema
        self._random = random.Random(seed)
        order = np.random.default_rng(seed).permutation(len(table))
        self._parts = [table.take(order[first::partitions]) for first in range(partitions)]

    def map(self, work: Work, schema: pa.Schema) -> pa.Table:
        copies = [pickle.loads(cloudpickle.dumps(work)) for _ in self._parts]
        tasks = list(zip(copies, self._parts, strict=True))
        self._random.shuffle(tasks)
        made = [batch for copy, part in tasks for batch in copy(iter(part.to_batches(50)))]
        return pa.Table.from_batches(made, schema)

    def run(self, work: Work, schema: pa.Schema, key: str, parts: int) -> Iterator[dict[str, Any]]:
        assert key in schema.names
        yield from self.map(work, schema).to_pylist()


def table(count: int = 400) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": np.arange(count),
            "user": [None if x == 1 else f"ü{x}" for x in rng.zipf(1.5, count) % 60],
            "price": [None if x > 1 else float(x) for x in rng.normal(size=count)],
            "tags": [None if x > 3 else ["a", "", None][:x] for x in rng.integers(0, 5, count)],
            "time": rng.integers(0, 100, count),
        }
    )


@pytest.mark.parametrize("partitions", [1, 3, 20])
@pytest.mark.parametrize("memory", [None, 1000])
def test_statistics_are_the_same_in_any_partitions_and_memory(
    partitions: int, memory: int | None
) -> None:
    expected = ft.Pipeline(OPERATIONS).fit(table())
    found = ft.Pipeline(OPERATIONS)
    found.states_ = fit_frame(OPERATIONS, Partitions(table(), partitions), memory)
    assert found.digest == expected.digest


def test_a_column_without_values_has_an_empty_vocabulary() -> None:
    rows = table().set_column(1, "user", pa.nulls(400, pa.string()))
    expected = ft.Pipeline(OPERATIONS).fit(rows)
    found = ft.Pipeline(OPERATIONS)
    found.states_ = fit_frame(OPERATIONS, Partitions(rows, 3))
    assert found.digest == expected.digest


def test_features_are_those_of_the_rows_in_memory() -> None:
    pipeline = ft.Pipeline(OPERATIONS).fit(table())
    assert pipeline.states_ is not None
    bound = pipeline.bind(table().schema)
    work = MakeFeatures(pipeline.operations, pipeline.states_, table().schema)
    found = Partitions(table(), 7).map(work, bound.schema)
    assert found.sort_by("id").equals(pipeline.transform(table()))


def test_no_rows_are_an_error(tmp_path: Path) -> None:
    empty = Partitions(table().slice(0, 0), 2)
    with pytest.raises(DataError, match="no training rows"):
        fit_frame(OPERATIONS, empty)
    with pytest.raises(DataError, match="a table in partitions has no rows"):
        stage_rows(empty, OPERATIONS, None, tmp_path / "out")


def test_what_depends_on_the_order_of_rows_is_refused(tmp_path: Path) -> None:
    frame, target = Partitions(table(), 2), ft.TargetEncode("user", target="price")
    with pytest.raises(DataError, match=r"target_encode: .*Write them to files.*table\.write"):
        fit_frame((target,), frame)
    with pytest.raises(DataError, match="target_encode: it depends on the order"):
        stage_rows(frame, (target,), None, tmp_path / "out")
    with pytest.raises(DataError, match=r"by_ratio: .*Use ft\.by_hash"):
        stage_rows(frame, OPERATIONS, ft.by_ratio(valid=0.1), tmp_path / "out")
    with pytest.raises(DataError, match="by_file: a table in partitions has no files"):
        stage_rows(frame, OPERATIONS, ft.by_file(train="*"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Preparation


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes `Partitions` for data of an engine."""
    monkeypatch.setattr(driver, "is_engine_frame", lambda data: isinstance(data, Partitions))
    monkeypatch.setattr(driver, "engine_frame", lambda data: data)


def prepare(data: Any, out: Path, operations: tuple[Operation, ...] = OPERATIONS) -> dict[str, Any]:
    split = ft.by_time("time", valid=0.2)
    found = ft.Pipeline(operations).fit_transform(data, split=split, out=out)
    assert {path.name for path in out.iterdir()} == FILES | {"train", "valid"}
    subsets = {name: pq.read_table(out / name).sort_by("id") for name in ("train", "valid")}
    assert {name: len(rows) for name, rows in subsets.items()} | {"test": 0} == found.rows
    digest = ft.Pipeline.load(out / "pipeline").digest
    return {name: rows.to_pylist() for name, rows in subsets.items()} | {"pipeline": digest}


@pytest.mark.usefixtures("engine")
def test_rows_are_prepared_as_those_of_files(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "rows.parquet")
    expected = prepare(str(tmp_path / "rows.parquet"), tmp_path / "files")
    for partitions in (1, 4):
        out = tmp_path / f"out-{partitions}"
        assert prepare(Partitions(table(), partitions), out) == expected
    written = [path.stat().st_mtime_ns for path in (out / "train").iterdir()]
    assert prepare(Partitions(table(), 3, seed=1), out) == expected  # as it is: the rows are equal
    assert [path.stat().st_mtime_ns for path in (out / "train").iterdir()] == written


@pytest.mark.usefixtures("engine")
def test_other_rows_start_anew(tmp_path: Path) -> None:
    prepare(Partitions(table(), 2), tmp_path / "out")
    with pytest.warns(UserWarning, match="prepared anew: data changed"):
        again = prepare(Partitions(table(300), 2), tmp_path / "out")
    assert sum(map(len, (again["train"], again["valid"]))) == 300


def interrupt(frame: Partitions, out: Path) -> list[str]:
    """Stage rows and fail before they are prepared; return the files that were staged."""
    staged = stage_rows(frame, OPERATIONS, None, out)

    def fail(*_: Any) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        prepare_folder(
            staged.source, OPERATIONS, None, out, 1 << 20, fail, data_digest=staged.digest
        )
    return [str(staged.folder / name) for name in staged.files]


def test_what_was_staged_before_an_interruption_is_used_again(tmp_path: Path) -> None:
    first = interrupt(Partitions(table(), 2), tmp_path / "out")
    assert interrupt(Partitions(table(), 3, seed=1), tmp_path / "out") == first
    assert {str(path) for path in tmp_path.rglob("*.parquet")} == set(first)
    mark = tmp_path / "out" / ".flambeau-work" / "mark"
    mark.touch()
    assert interrupt(Partitions(table(), 2), tmp_path / "out") == first
    assert mark.exists()
    Path(first[0]).unlink()  # what was done with it is of no use
    assert interrupt(Partitions(table(), 2), tmp_path / "out") != first
    assert not mark.exists()


def test_files_that_no_task_has_reported_do_not_count(tmp_path: Path) -> None:
    class Repeating(Partitions):
        """Does each task twice, as an engine does that has lost the result of the first."""

        def map(self, work: Work, schema: pa.Schema) -> pa.Table:
            super().map(work, schema)
            return super().map(work, schema)

    staged = stage_rows(Repeating(table(), 3), OPERATIONS, None, tmp_path / "out")
    assert sum(shard.rows for shard in staged.source.shards()) == 400
    assert len(list(staged.folder.iterdir())) == 6


def test_a_folder_that_tasks_do_not_see_is_an_error(tmp_path: Path) -> None:
    work = WriteRows(str(tmp_path / "out" / "rows" / "1"), table().schema)
    with pytest.raises(DataError, match=r"does not see .*/out: give out="):
        Partitions(table(), 1).map(work, WRITTEN)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="has files that are no prepared features"):
        stage_rows(Partitions(table(), 1), OPERATIONS, None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
