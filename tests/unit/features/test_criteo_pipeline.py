"""Criteo's logs through pipelines: what the reader does itself, and the same by operations."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flambeau as fb
import flambeau.features as ft
from flambeau.data.sources.text.criteo import open_criteo
from flambeau.data.sources.text.text_source import TextSource
from flambeau.features.fused_reading import fuse
from flambeau.features.pipeline import Pipeline
from flambeau.features.raw_data import open_rows

SIZES = {"dense_columns": 2, "id_columns": 2}
EXTREMES = [0, -1, 4095, 4096, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63), 10**18 + 1, 2**64 - 1]

integers = st.sampled_from(EXTREMES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5000)
numbers = st.none() | integers | st.sampled_from([1.5, 0.1, -0.25, 12345.678, 4096.5])
words = st.sampled_from(["68fd1e64", "é", "日本語", "🔥" * 5, "x" * 300, " ", '"a"', "NULL"])
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n")
texts = st.none() | words | st.text(characters, max_size=20)
rows = st.lists(st.tuples(numbers, numbers, texts, texts), min_size=1, max_size=8)


def line(cells: Any, label: str = "1") -> str:
    return "\t".join([label, *("" if cell is None else str(cell) for cell in cells)])


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8", newline="")
    return path


def table_of(source: TextSource) -> pa.Table:
    batches = [b for shard in source.shards() for b in source.read(shard, source.schema.names)]
    return pa.Table.from_batches(batches, source.schema)


def bits(table: pa.Table, names: list[str]) -> list[Any]:
    """Return columns such that only equal bits are equal."""
    found = []
    for name in names:
        column = table[name].combine_chunks()
        missing = column.is_null().to_pylist()
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        found.append((str(column.type), missing, values.tobytes()))
    return found


NAMES = ["label", "I1", "I2", "C1", "C2"]


@settings(max_examples=60)
@given(rows)
@example([(value, value, "a", None) for value in EXTREMES])
def test_the_reader_and_the_operations_give_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, cells: Any
) -> None:
    path = str(write(tmp_path_factory.mktemp("log") / "day_0", [line(each) for each in cells]))
    pipeline = ft.criteo(vocabulary=False, **SIZES)
    raw = open_criteo(path, raw=True, **SIZES)
    as_without_features = table_of(open_criteo(path, **SIZES))
    source, done = fuse(raw, pipeline.operations)
    assert done == len(pipeline.operations)
    fused = table_of(source)
    pipeline.fit(raw)
    separate = pa.Table.from_batches(pipeline.bind(raw.schema).batches(raw))
    assert bits(fused, NAMES) == bits(separate, NAMES) == bits(as_without_features, NAMES)
    # Rows as an application has them: numbers as Python's, missing texts as None or as empty.
    given = [dict(zip(NAMES[1:], each, strict=True)) for each in cells]
    for number, row in enumerate(given):
        values = {name: [value] for name, value in row.items()}
        kinds = {"I1": pa.float64(), "I2": pa.float64(), "C1": pa.string(), "C2": pa.string()}
        one = pa.record_batch({name: _column(values[name], kinds[name]) for name in values})
        made = pipeline.bind(one.schema, NAMES[1:])(one)
        expected = bits(fused.slice(number, 1), NAMES[1:])
        assert bits(pa.Table.from_batches([made]), NAMES[1:]) == expected


def _column(values: list[Any], empty: pa.DataType) -> pa.Array:
    if values == [None]:
        return pa.nulls(1, empty)
    try:
        return pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())


def test_empty_texts_of_rows_are_missing_as_those_of_logs_are() -> None:
    pipeline = ft.criteo(vocabulary=False, **SIZES)
    log = pa.table({"I1": [1.0], "I2": [2.0], "C1": ["a"], "C2": ["b"]})
    pipeline.fit(log)
    found = pipeline.transform({"I1": [1], "I2": [None], "C1": [""], "C2": ["b"]})
    assert found["C1"].to_pylist() == [None]
    assert found["C2"].to_pylist() == pipeline.transform(log)["C2"].to_pylist()


@pytest.mark.parametrize("changed", [{"salt": "a"}, {"modulo": 7}, {"out": "{}_id"}])
def test_other_operations_are_not_left_to_the_reader(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    path = str(write(tmp_path / "day_0", [line([1, 2, "a", "b"])]))
    raw = open_criteo(path, raw=True, **SIZES)
    assert fuse(raw, [ft.Log("I1:I2"), ft.Hash("C1:C2", **changed)])[1] == 0
    assert fuse(raw, [ft.Log("I1"), ft.Hash("C1:C2")])[1] == 0
    assert fuse(raw, [ft.Log("I1:I2"), ft.Hash("C1:C2")])[1] == 2
    assert fuse(open_criteo(path, **SIZES), [ft.Log("I1:I2"), ft.Hash("C1:C2")])[1] == 0


def test_a_vocabulary_numbers_texts_by_how_often_they_occur(tmp_path: Path) -> None:
    cells = [[1, 2, text, "z"] for text in "aabbbcd"] + [[1, 2, None, "y"]]
    files = fb.files(
        str(write(tmp_path / "day_0", [line(each) for each in cells])), format="criteo", **SIZES
    )
    pipeline = ft.criteo(min_count=2, **SIZES).fit(files)
    assert pipeline.sizes_ == {"C1": 3, "C2": 2}
    assert pipeline.transform({"I1": [1], "I2": [2], "C1": ["b"], "C2": ["z"]})[
        "C1"
    ].to_pylist() == [1]
    source, rest = pipeline.fused(open_rows(files))
    found = pa.Table.from_batches(rest.bind(source.schema).batches(source))
    assert found["C1"].to_pylist() == [2, 2, 1, 1, 1, 0, 0, 0]
    assert found["C2"].to_pylist() == [1] * 7 + [0]
    assert found["I1"].to_numpy().tobytes() == np.full(8, np.log1p(1.0), np.float32).tobytes()


def test_logs_of_any_name_packed_and_with_other_labels_are_read_as_logs(tmp_path: Path) -> None:
    lines = [line([1, 2, "a", "b"], "-1"), line([3, None, None, "b"], "1")]
    plain = write(tmp_path / "day_0", lines)
    packed = tmp_path / "day_0.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        source = open_rows(fb.files(str(path), **SIZES), "criteo")
        source, _ = ft.criteo(vocabulary=False, **SIZES).fused(source)
        assert isinstance(source, TextSource)
        assert bits(table_of(source), NAMES) == bits(
            table_of(open_criteo(str(path), **SIZES)), NAMES
        )


def test_a_log_without_labels_has_the_same_features(tmp_path: Path) -> None:
    cells = [[1, None, "a", "b"], [2, 3, None, "c"]]
    labelled = open_criteo(
        str(write(tmp_path / "train", [line(each) for each in cells])), raw=True, **SIZES
    )
    bare = write(tmp_path / "test", [line(each).removeprefix("1\t") for each in cells])
    unlabelled = open_criteo(str(bare), labels=[], raw=True, **SIZES)
    pipeline: Pipeline = ft.criteo(**SIZES).fit(labelled)
    found = [pipeline.fused(each) for each in (labelled, unlabelled)]
    tables = [
        pa.Table.from_batches(rest.bind(source.schema, NAMES[1:]).batches(source))
        for source, rest in found
    ]
    assert bits(tables[0], NAMES[1:]) == bits(tables[1], NAMES[1:])
