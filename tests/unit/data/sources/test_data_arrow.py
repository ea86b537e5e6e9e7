import pickle

import pyarrow as pa
import pytest

from flambeau.data.sources import record_batches
from flambeau.data.sources.arrow import ArrowSource
from flambeau.errors import DataError

BATCHES = [
    pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"]}),
    pa.record_batch({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}),
    pa.record_batch({"a": [4, 5], "b": ["v", "w"]}),
]


def write(path, batches, new=pa.ipc.new_file, **options):
    write_options = pa.ipc.IpcWriteOptions(**options)
    with (
        pa.OSFile(str(path), "wb") as file,
        new(file, batches[0].schema, options=write_options) as w,
    ):
        for batch in batches:
            w.write_batch(batch)
    return str(path)


def values(source, shard, column, **rows):
    return [
        value for batch in source.read(shard, [column], **rows) for value in batch[0].to_pylist()
    ]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_shard_of_a_file_is_a_record_batch(tmp_path, compression):
    source = ArrowSource(write(tmp_path / "a.arrow", BATCHES, compression=compression))
    assert [(shard.part, shard.rows) for shard in source.shards()] == [(0, 3), (2, 2)]
    assert source.schema == BATCHES[0].schema
    assert values(source, source.shards()[1], "b") == ["v", "w"]
    assert values(source, source.shards()[0], "a", start=1, stop=2) == [2]


def test_a_shard_of_a_stream_is_the_whole_file(tmp_path):
    source = ArrowSource(write(tmp_path / "a.arrow", BATCHES, pa.ipc.new_stream))
    assert [(shard.part, shard.rows) for shard in source.shards()] == [(0, 5)]
    assert values(source, source.shards()[0], "a", start=2, stop=4) == [3, 4]


def test_only_the_asked_columns_are_read(tmp_path):
    source = ArrowSource(write(tmp_path / "a.arrow", BATCHES))
    assert next(source.read(source.shards()[0], ["b"])).schema.names == ["b"]


def test_large_record_batches_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(record_batches, "BATCH_ROWS", 2)
    source = ArrowSource(write(tmp_path / "a.arrow", BATCHES))
    read = list(source.read(source.shards()[0], ["a"]))
    assert [batch["a"].to_pylist() for batch in read] == [[1, 2], [3]]


def test_source_survives_pickling(tmp_path):
    source = pickle.loads(pickle.dumps(ArrowSource(write(tmp_path / "a.feather", BATCHES))))
    assert values(source, source.shards()[1], "a") == [4, 5]


def test_files_with_other_columns_are_named(tmp_path):
    write(tmp_path / "a.arrow", BATCHES)
    write(tmp_path / "b.arrow", [pa.record_batch({"a": [1]})])
    with pytest.raises(DataError, match=r"b\.arrow has no column 'b'"):
        ArrowSource(str(tmp_path)).shards()


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_truncated_files_are_named(tmp_path, new):
    path = tmp_path / "a.arrow"
    write(path, BATCHES, new)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"a\.arrow cannot be read as Arrow"):
        ArrowSource(str(path)).shards()


def test_files_without_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="no rows"):
        ArrowSource(write(tmp_path / "a.arrow", BATCHES[1:2])).shards()


def test_repeated_column_names_are_refused(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match="more than one column named 'a'"):
        ArrowSource(write(tmp_path / "a.arrow", [batch]))
