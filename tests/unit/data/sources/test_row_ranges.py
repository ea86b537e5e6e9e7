"""Ranges of rows of a shard: together every row once, and read without what is before them."""

import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import write

from flambeau.data.source import StreamedSource
from flambeau.data.sources import files
from flambeau.data.sources.arrow import ArrowSource
from flambeau.data.sources.parquet import ParquetSource
from flambeau.data.sources.text import csv_lines, text_lines
from flambeau.data.sources.text.criteo import open_criteo
from flambeau.data.sources.text.csv import CsvSource
from flambeau.data.sources.text.libsvm import open_libsvm
from flambeau.errors import DataError


def labels(
    source: StreamedSource, shard: int = 0, start: int = 0, stop: int | None = None
) -> list[int]:
    batches = source.read(source.shards()[shard], ["label"], start, stop)
    return [int(label) for batch in batches for label in batch["label"].to_pylist()]


def in_ranges(source: StreamedSource, size: int) -> list[int]:
    """The rows of all shards, read `size` at a time, the last ranges first."""
    found: list[list[int]] = []
    for number, shard in enumerate(source.shards()):
        ranges = [
            labels(source, number, start, min(start + size, shard.rows))
            for start in reversed(range(0, shard.rows, size))
        ]
        found += reversed(ranges)
    return list(itertools.chain(*found))


def text_of(form: str, rows: list[int | None], ending: str) -> str:
    """Lines of a format; None is a blank one."""
    shapes = {
        "libsvm": "{} 1:1 2:0.5",
        "csv": '{},"a ""b"" c"',
        "criteo": "{}\t" + "\t".join(["1"] * 13 + ["ab"] * 26),
    }
    header = ["label,x"] if form == "csv" else []
    lines = [*header, *("" if row is None else shapes[form].format(row) for row in rows)]
    return ending.join(lines)


def opened(form: str, path: str, **options: object) -> StreamedSource:
    makers = {"libsvm": open_libsvm, "csv": CsvSource, "criteo": open_criteo}
    return makers[form](path, **options)  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["libsvm", "csv", "criteo"])
@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.none() | st.integers(0, 9), max_size=30),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    mark=st.booleans(),
    policy=st.sampled_from(["error", "skip"]),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 60), st.integers(20, 400)),
)
def test_ranges_have_every_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    suffix: str,
    rows: list[int | None],
    ending: str,
    last: bool,
    mark: bool,
    policy: str,
    sizes: tuple[int, int, int],
) -> None:
    size, block, shard_bytes = sizes
    text = text_of(form, [7, *rows], ending) + ending * last
    folder = tmp_path_factory.mktemp("ranges")
    path = write(folder / f"a.{form}{suffix}", b"\xef\xbb\xbf" * mark + text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_BYTES", block)
        patch.setattr(csv_lines, "_BLOCK", block)
        source = opened(form, path, shard_bytes=shard_bytes, on_bad_row=policy)
        assert in_ranges(source, size) == [7, *(row for row in rows if row is not None)]


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrows"])
def test_ranges_of_columnar_files_have_every_row_once(tmp_path: Path, form: str) -> None:
    table, path = pa.table({"label": range(100)}), str(tmp_path / f"a.{form}")
    if form == "parquet":
        pq.write_table(table, path, row_group_size=40)
        source: StreamedSource = ParquetSource(path)
    else:
        new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with new(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=40)
        source = ArrowSource(path)
    assert in_ranges(source, 7) == list(range(100))


@pytest.mark.parametrize("form", ["libsvm", "csv"])
def test_a_range_of_a_plain_file_is_read_without_what_is_before_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_lines, "_BLOCK", 100)
    text = text_of(form, list(range(1000)), "\n")
    source = opened(form, write(tmp_path / f"a.{form}", text))
    source.shards()
    read: list[int] = []
    original = files.read_bytes

    def record(path: str, start: int, stop: int) -> pa.Buffer:
        read.append(start)
        return original(path, start, stop)

    monkeypatch.setattr(files, "read_bytes", record)
    assert labels(source, 0, 900, 905) == list(range(900, 905))
    assert min(read) > 0.85 * len(text)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("form", ["libsvm", "csv"])
def test_a_bad_row_of_a_later_block_has_its_line_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, suffix: str
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 40_000)
    monkeypatch.setattr(csv_lines, "_BLOCK", 40_000)
    # More than what types are inferred from.
    text = text_of(form, [None, *range(100_000)], "\n") + "\nbad,x\n"
    source = opened(form, write(tmp_path / f"a.{form}{suffix}", text))
    with pytest.raises(DataError, match=f"line {text.count(chr(10))}: "):
        labels(source, 0, 99_000)
