"""Every reader on files that are not local."""

import gzip
import io
import pickle

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flambeau.config import FileData
from flambeau.data.sources import files
from flambeau.data.sources.formats import infer_format
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.parquet import ParquetSource
from flambeau.data.sources.text.csv import CsvSource
from flambeau.errors import DataError

ROWS = 1000
TABLE = pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS) / 2})
TEXT = b"a,b\n" + b"".join(b"%d,%s\n" % (n, repr(n / 2).encode()) for n in range(ROWS))


def parquet_bytes():
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=300)
    return sink.getvalue()


def arrow_bytes(new):
    sink = io.BytesIO()
    with new(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, 300)
    return sink.getvalue()


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


#: The bytes and the number of shards by name.
KINDS = {
    "a.parquet": (parquet_bytes(), 4),
    "a.arrow": (arrow_bytes(pa.ipc.new_file), 4),
    "a.arrows": (arrow_bytes(pa.ipc.new_stream), 1),
    "a.csv": (TEXT, 3),
    "a.csv.gz": (gzip.compress(TEXT), 1),
    "a.csv.zst": (zstd(TEXT), 1),
    "a.tsv": (TEXT.replace(b",", b"\t"), 3),
    "a.tsv.gz": (gzip.compress(TEXT.replace(b",", b"\t")), 1),
    "a.tsv.zst": (zstd(TEXT.replace(b",", b"\t")), 1),
}


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def source_at(url, **options):
    if "sv" in url:
        options = {"shard_bytes": 4000, **options}
    return open_source(FileData(path=url, options=options), lambda _: None)


def table_of(source):
    names = source.schema.names
    return pa.Table.from_batches(
        batch for shard in source.shards() for batch in source.read(shard, names)
    )


@pytest.mark.parametrize("name", KINDS)
def test_rows_from_a_file_system_in_memory(memory, name):
    data, shards = KINDS[name]
    memory.pipe(f"/d/{name}", data)
    source = source_at(f"memory://d/{name}")
    assert len(source.shards()) == shards
    assert table_of(source) == TABLE


@pytest.mark.parametrize("name", KINDS)
def test_rows_from_a_web_server(file_server, name):
    file_server.files[name] = KINDS[name][0]
    assert table_of(source_at(f"{file_server.url}/{name}?key=secret")) == TABLE


@pytest.mark.parametrize("name", ["a.csv.zst", "a.tsv.zst"])
def test_rows_of_local_files_in_zstd(tmp_path, name):
    (tmp_path / name).write_bytes(KINDS[name][0])
    source = source_at(str(tmp_path / name))
    assert len(source.shards()) == 1
    assert table_of(source) == TABLE


@pytest.mark.parametrize("name", KINDS)
def test_part_of_a_shard(memory, name):
    memory.pipe(f"/d/{name}", KINDS[name][0])
    source = source_at(f"memory://d/{name}")
    (batch,) = source.read(source.shards()[0], ["a"], start=7, stop=9)
    assert batch.to_pydict() == {"a": [7, 8]}


@pytest.mark.parametrize("name", KINDS)
def test_a_source_that_was_used_can_be_sent_to_a_worker(memory, name):
    memory.pipe(f"/d/{name}", KINDS[name][0])
    source = source_at(f"memory://d/{name}")
    table_of(source)
    assert table_of(pickle.loads(pickle.dumps(source))) == TABLE


@pytest.mark.parametrize("name", KINDS)
def test_two_readers_of_a_shard_may_take_turns(memory, name):
    memory.pipe(f"/d/{name}", KINDS[name][0])
    source = source_at(f"memory://d/{name}")
    shard = source.shards()[0]
    pairs = zip(source.read(shard, ["a"]), source.read(shard, ["a"]), strict=True)
    assert all(one == other for one, other in pairs)


def test_files_of_a_remote_folder(memory):
    for name in ("x.csv", "y.csv.gz", "z.csv.zst"):
        memory.pipe(f"/d/{name}", KINDS[f"a{name[1:]}"][0])
    assert table_of(source_at("memory://d")).num_rows == 3 * ROWS


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://d/x.csv", "csv"),
        ("memory://d/*.tsv.zst", "tsv"),
        ("http://host/x.parquet?key=abc.csv", "parquet"),
        ("memory://d", "arrow"),
        ("memory://bare", "parquet"),
        ("memory://packed", "arrow"),
        ("memory://packed2", "parquet"),
    ],
)
def test_the_format_of_a_url(memory, url, expected):
    memory.pipe("/d/part-0.arrow", KINDS["a.arrow"][0])
    memory.pipe("/bare", KINDS["a.parquet"][0])
    memory.pipe("/packed", zstd(KINDS["a.arrow"][0]))
    memory.pipe("/packed2", gzip.compress(KINDS["a.parquet"][0]))
    assert infer_format(url) == expected


def test_the_format_of_a_local_file_in_zstd_by_its_bytes(tmp_path):
    (tmp_path / "bare").write_bytes(zstd(KINDS["a.arrow"][0]))
    assert infer_format(str(tmp_path / "bare")) == "arrow"


def test_a_damaged_file_in_zstd_is_named(tmp_path):
    (tmp_path / "bare").write_bytes(zstd(KINDS["a.arrow"][0])[:4] + b"\xff" * 40)
    with pytest.raises(DataError, match="bare is a damaged zstd file"):
        infer_format(str(tmp_path / "bare"))


def test_a_format_that_cannot_be_known(memory):
    memory.pipe("/d/notes", b"what is this")
    with pytest.raises(DataError, match="format of 'memory://d/notes' is not known"):
        infer_format("memory://d/notes")


@pytest.mark.parametrize(
    ("name", "format"), [("a.parquet.gz", "parquet"), ("a.arrow.zst", "arrow")]
)
def test_formats_with_their_own_compression_are_not_read_packed(memory, name, format):
    memory.pipe(f"/d/{name}", b"1")
    with pytest.raises(DataError, match=f"{name} .* compressed as a whole; unpack it"):
        open_source(FileData(path=f"memory://d/{name}", format=format), lambda _: None)


@pytest.mark.parametrize("format", ["idx", "images", "cifar10", "cifar100"])
def test_formats_that_are_mapped_are_local_only(format):
    with pytest.raises(DataError, match="reads local files only: copy 's3://b/x' first"):
        open_source(FileData(path="s3://b/x", format=format), lambda _: None)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_text_is_named(memory, suffix):
    memory.pipe(f"/d/a.csv{suffix}", KINDS[f"a.csv{suffix}"][0][:-20])
    with pytest.raises(DataError, match=f"memory://d/a.csv{suffix}"):
        table_of(CsvSource(f"memory://d/a.csv{suffix}"))


def test_the_line_of_a_bad_value_in_a_remote_file(memory):
    memory.pipe("/d/a.csv", b"a,b\n" + b"1,2\n" * 99 + b"1,x\n")
    source = CsvSource("memory://d/a.csv", types={"b": "int64"}, shard_bytes=100)
    with pytest.raises(DataError, match=r"memory://d/a.csv line 101: .*column 'b'"):
        table_of(source)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_the_line_of_a_bad_value_in_a_compressed_file(memory, suffix):
    text = b"a,b\n" + b"1,2\n" * 99 + b"1,x\n"
    memory.pipe(f"/d/a.csv{suffix}", gzip.compress(text) if suffix == ".gz" else zstd(text))
    with pytest.raises(DataError, match=f"memory://d/a.csv{suffix} line 101: .*column 'b'"):
        table_of(CsvSource(f"memory://d/a.csv{suffix}", types={"b": "int64"}))


def test_an_open_quote_in_a_compressed_file(memory):
    memory.pipe("/d/a.csv.gz", gzip.compress(b'a,b\n1,2\n1,"x\ny"\n3,4\n'))
    with pytest.raises(DataError, match=r"a.csv.gz line 3: a quoted value continues"):
        table_of(CsvSource("memory://d/a.csv.gz"))


def test_a_large_compressed_text_is_warned_of(memory, monkeypatch):
    memory.pipe("/d/a.csv.gz", KINDS["a.csv.gz"][0])
    assert CsvSource("memory://d/a.csv.gz").warnings == ()
    monkeypatch.setattr(files, "_LARGE", 100)
    (text,) = CsvSource("memory://d/a.csv.gz").warnings
    assert "memory://d/a.csv.gz" in text


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz"])
def test_a_file_that_is_not_there(file_server, name):
    with pytest.raises(DataError, match=f"{file_server.url}/{name} cannot be read: 404"):
        source_at(f"{file_server.url}/{name}")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.csv.gz", "a.csv.zst"])
def test_a_broken_transfer(file_server, name):
    file_server.files[name] = KINDS[name][0]
    source = source_at(f"{file_server.url}/{name}?key=secret")
    source.shards()
    file_server.broken.add(name)
    source = pickle.loads(pickle.dumps(source))
    with pytest.raises(DataError, match=f"{name}.* cannot be read: .*not completed") as caught:
        table_of(source)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_gone_when_its_rows_are_read(file_server):
    file_server.files["a.csv"] = TEXT
    source = source_at(f"{file_server.url}/a.csv")
    source.shards()
    file_server.files.clear()
    with pytest.raises(DataError, match=f"{file_server.url}/a.csv cannot be read: there is no"):
        table_of(source)


def test_nobody_listens():
    with pytest.raises(DataError, match=r"127.0.0.1:9/a.csv cannot be read: Cannot connect"):
        source_at("http://127.0.0.1:9/a.csv")


def test_a_server_without_ranges(file_server):
    file_server.ranges = False
    file_server.files["a.csv"] = TEXT * 10
    with pytest.raises(DataError, match="its server does not support range requests"):
        table_of(source_at(f"{file_server.url}/a.csv"))


def test_only_the_wanted_columns_are_fetched(file_server):
    wide = pa.table({f"c{n}": np.random.default_rng(n).random(200_000) for n in range(8)})
    sink = io.BytesIO()
    pq.write_table(wide, sink)
    file_server.files["a.parquet"] = sink.getvalue()
    source = ParquetSource(f"{file_server.url}/a.parquet")
    (shard,) = source.shards()
    file_server.asked.clear()
    list(source.read(shard, ["c3"]))
    ranges = [wanted.removeprefix("bytes=").split("-") for _, wanted in file_server.asked if wanted]
    assert sum(int(last) - int(first) for first, last in ranges) < len(sink.getvalue()) / 4
