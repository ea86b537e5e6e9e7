import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.data.sources import parquet
from flambeau.data.sources.parquet import ParquetSource
from flambeau.errors import DataError


def write(path, first, last, rows_per_group=4):
    numbers = list(range(first, last))
    table = pa.table(
        {"a": pa.array(numbers, pa.int64()), "b": pa.array(map(str, numbers), pa.string())}
    )
    pq.write_table(table, path, row_group_size=rows_per_group)


def values(source, shard, column="a", **rows):
    return [
        value for batch in source.read(shard, [column], **rows) for value in batch[0].to_pylist()
    ]


@pytest.fixture
def files(tmp_path):
    write(tmp_path / "part-0.parquet", 0, 10)
    write(tmp_path / "part-1.parquet", 10, 13)
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def test_a_shard_is_a_row_group(files):
    source = ParquetSource(str(files))
    assert [(shard.part, shard.rows) for shard in source.shards()] == [
        (0, 4),
        (1, 4),
        (2, 2),
        (0, 3),
    ]
    assert source.schema.names == ["a", "b"]
    assert [values(source, shard) for shard in source.shards()[2:]] == [[8, 9], [10, 11, 12]]


def test_rows_of_a_shard_can_be_cut(files):
    source = ParquetSource(str(files / "part-0.parquet"))
    assert values(source, source.shards()[1], start=1, stop=3) == [5, 6]
    assert values(source, source.shards()[1], "b", start=3) == ["7"]
    assert values(source, source.shards()[1], start=2, stop=2) == []


def test_large_row_groups_come_in_bounded_batches(tmp_path):
    write(tmp_path / "a.parquet", 0, 70_000, rows_per_group=70_000)
    source = ParquetSource(str(tmp_path / "a.parquet"))
    sizes = [batch.num_rows for batch in source.read(source.shards()[0], ["a"], start=10)]
    assert max(sizes) <= 65_536
    assert sum(sizes) == 69_990


def test_more_files_than_are_kept_open_can_be_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_KEPT_OPEN", 2)
    for number in range(5):
        write(tmp_path / f"{number}.parquet", number, number + 1)
    source = ParquetSource(str(tmp_path))
    readers = [source.read(shard, ["a"]) for shard in source.shards()]
    assert [next(reader)[0].to_pylist() for reader in readers] == [[0], [1], [2], [3], [4]]


def test_source_survives_pickling_while_files_are_open(files):
    source = ParquetSource(str(files))
    shard = source.shards()[0]
    assert values(pickle.loads(pickle.dumps(source)), shard) == values(source, shard)


def test_row_groups_without_rows_are_no_shards(files):
    write(files / "part-2.parquet", 0, 0)
    assert len(ParquetSource(str(files)).shards()) == 4
    with pytest.raises(DataError, match="no rows"):
        ParquetSource(str(files / "part-2.parquet")).shards()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1]}, "z.parquet has no column 'b'"),
        ({"a": [1.5], "b": ["x"]}, "column 'a' is double in .*z.parquet but int64 in .*part-0"),
        ({"a": [1], "b": ["x"], "c": [1]}, "z.parquet has a column 'c'"),
    ],
)
def test_files_with_other_columns_are_named(files, columns, message):
    pq.write_table(pa.table(columns), files / "z.parquet")
    with pytest.raises(DataError, match=message):
        ParquetSource(str(files)).shards()


def test_corrupt_files_are_named(files):
    path = files / "part-0.parquet"
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    with pytest.raises(DataError, match=r"part-0\.parquet cannot be read as Parquet"):
        ParquetSource(str(path))
    path.write_bytes(good[:4] + b"\xff" * 60 + good[64:])
    source = ParquetSource(str(path))
    with pytest.raises(DataError, match=r"part-0\.parquet cannot be read as Parquet"):
        values(source, source.shards()[0])
