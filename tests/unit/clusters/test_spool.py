"""Rows that come once, in files without names."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flambeau.clusters.spark.task import MARKER, told_apart
from flambeau.clusters.spool import Spool
from flambeau.data.sources.engine_frames import EngineFrameSource
from flambeau.errors import DataError


def numbers(*values: int, **more: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"x": list(values), **more})


def named(*batches: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    return (("train", batch) for batch in batches)


def rows_of(source: EngineFrameSource) -> list[int]:
    return [
        value
        for shard in source.shards()
        for batch in source.read(shard, ["x"])
        for value in batch.column(0).to_pylist()
    ]


def test_what_comes_can_be_read_as_often_as_wanted(tmp_path: Path) -> None:
    with Spool(("train",), str(tmp_path)) as spool:
        spool.fill(named(numbers(1, 2, 3), numbers(4)))
        assert spool.rows == {"train": [3, 1]}
        assert spool.size > 0
        assert not list(tmp_path.iterdir()), "it has no name"
        source = EngineFrameSource(spool.descriptors["train"], [[3, 1], [2]], 0, ["x"])
        assert [rows_of(source), rows_of(source)] == [[1, 2, 3, 4]] * 2
        assert [shard.rows for shard in source.shards()] == [3, 1, 2]
        assert source.schema.names == ["x"]
        (middle,) = source.read(source.shards()[0], ["x"], 1, 2)
        assert middle.column(0).to_pylist() == [2]


def test_a_checksum_recognises_rows_in_their_order_and_division(tmp_path: Path) -> None:
    def checksum(*batches: pa.RecordBatch) -> int:
        with Spool(("train",), str(tmp_path)) as spool:
            spool.fill(named(*batches))
            return spool.checksums["train"]

    known = checksum(numbers(1, 2, 3), numbers(4))
    assert checksum(numbers(1, 2, 3), numbers(9, 4).slice(1)) == known
    for others in ((1, 2, 5), (4,)), ((2, 1, 3), (4,)), ((4,), (1, 2, 3)), ((1, 2), (3, 4)):
        assert checksum(*(numbers(*batch) for batch in others)) != known


def test_two_frames_come_as_one() -> None:
    batches = [numbers(1, 2, 3, **{MARKER: [0, 1, 0]}), numbers(4, **{MARKER: [1]})]
    frames = ("train", "valid")
    with Spool(frames, None) as spool:
        spool.fill(told_apart(frames, iter(batches)))
        assert spool.rows == {"train": [2], "valid": [1, 1]}
        found = {
            name: rows_of(EngineFrameSource(spool.descriptors[name], [spool.rows[name]], 0, ["x"]))
            for name in spool.rows
        }
    assert found == {"train": [1, 3], "valid": [2, 4]}


def test_an_agent_without_rows_knows_those_of_others() -> None:
    with Spool(("train",), None) as spool:
        spool.fill(iter([]))
        assert spool.rows == {"train": []}
        assert spool.size == 0
    source = EngineFrameSource(None, [[], [5]], 0, ["x"])
    assert rows_of(source) == []
    assert source.schema.names == ["x"]


def test_rows_that_no_worker_can_read_are_an_error() -> None:
    source = EngineFrameSource(None, [[3], [1], []], 0, ["x"])
    assert source.agents_of(3) == [0, 1, 2]
    assert source.agents_of(4) == [0, 1, 1, 2]
    with pytest.raises(DataError, match=r"^3 rows of the .*: there are 3 agents and 1 worker\. "):
        source.agents_of(1)


def test_files_are_given_back() -> None:
    with Spool(("train",), None) as spool:
        spool.fill(named(numbers(1)))
        (descriptor,) = spool.descriptors.values()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        Spool(("train",), str(tmp_path / "nowhere")) as spool,
        pytest.raises(DataError, match=r"nowhere of a worker's machine: .*spool_dir"),
    ):
        spool.fill(named(numbers(1)))


def test_no_rows_at_all_are_an_error() -> None:
    with pytest.raises(DataError, match="the data frame has no rows"):
        EngineFrameSource(None, [[], []], 0, ["x"]).shards()


def test_nulls_are_counted_by_frame_and_column() -> None:
    batches = [
        pa.record_batch({"x": [1, None, 3], "y": [1, 2, 3], MARKER: [0, 0, 1]}),
        pa.record_batch({"x": [None, 5], "y": [1, 2], MARKER: [0, 1]}),
    ]
    frames = ("train", "valid")
    with Spool(frames, None) as spool:
        spool.fill(told_apart(frames, iter(batches)))
        assert spool.nulls == {"train": {"x": 2}, "valid": {}}
