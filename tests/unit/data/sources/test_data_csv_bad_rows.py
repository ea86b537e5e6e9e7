"""CSV files with rows that cannot be read."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.data.sources.text.csv import CsvSource
from flambeau.errors import ConfigError, DataError

BAD = ["x,1.5,c", "1,zwei,c", "1,1.5", "1,1.5,c,d", '1,1.5,"open', "99999999999999999999,1.5,c"]
TYPES = {"a": "int64", "b": "float64", "c": "string"}


def write(path: Path, rows: list[str], end: str = "\n") -> Path:
    text = "".join(row + end for row in ["a,b,c", *rows])
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(source: CsvSource, columns: list[str]) -> list[dict[str, object]]:
    batches = [batch for shard in source.shards() for batch in source.read(shard, columns)]
    return pa.Table.from_batches(
        batches, source.schema.empty_table().select(columns).schema
    ).to_pylist()


def test_a_delimiter_is_one_character(tmp_path: Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text("1::1193::5\n1::661::3\n")
    with pytest.raises(ConfigError, match=r"delimiter='::': give one .* give names= for these"):
        CsvSource(str(path), delimiter="::", names=["user", "item", "rating"])
    source = CsvSource(str(path), delimiter=":", names=["user", "x", "item", "y", "rating"])
    assert read(source, ["user", "item", "rating"])[1] == {"user": 1, "item": 661, "rating": 3}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_bad_rows_are_left_out_and_counted(tmp_path: Path, bad: str, name: str) -> None:
    rows = [f"{number},{number}.5,t{number}" for number in range(40)]
    mixed = [*rows[:7], bad, *rows[7:20], bad, bad, *rows[20:], bad]
    source = CsvSource(
        str(write(tmp_path / name, mixed)), types=TYPES, on_bad_row="skip", shard_bytes=100
    )
    assert [row["a"] for row in read(source, ["a"])] == list(range(40))
    assert source.skipped_rows == 4
    assert read(source, ["c", "b"])[39] == {"c": "t39", "b": 39.5}


@pytest.mark.parametrize("bad", BAD)
def test_otherwise_a_bad_row_is_an_error_with_a_way_out(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "rows.csv", ["1,1.5,c", bad, "2,2.5,d"])
    with pytest.raises(DataError, match=r"rows\.csv.*line 3") as caught:
        read(CsvSource(str(path), types=TYPES), ["a", "b", "c"])
    assert "on_bad_row=skip" in str(caught.value) or "quoted" in str(caught.value)


def test_rows_are_found_from_any_place(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["0,0,c", "bad", "1,1,c", "2,2,c", "bad", "3,3,c"])
    source = CsvSource(str(path), types=TYPES, on_bad_row="skip")
    (shard,) = source.shards()
    assert shard.rows == 4
    found = [batch.column(0).to_pylist() for batch in source.read(shard, ["a"], 1, 3)]
    assert found == [[1, 2]]


def test_nothing_but_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["1,2", "3"])
    with pytest.raises(DataError, match="no rows, only 2 bad rows"):
        CsvSource(str(path), types=TYPES, on_bad_row="skip").shards()


def test_another_word(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ["1,2,c"])
    with pytest.raises(ConfigError, match="on_bad_row='skipp'"):
        CsvSource(str(path), on_bad_row="skipp")  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(BAD)), max_size=30),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_mixture(
    tmp_path_factory: pytest.TempPathFactory, mixture: list[int | str], end: str
) -> None:
    rows = [row if isinstance(row, str) else f"{row},0.5,c" for row in mixture]
    path = write(tmp_path_factory.mktemp("mixture") / "rows.csv", ["7,7,c", *rows], end)
    source = CsvSource(str(path), types=TYPES, on_bad_row="skip", shard_bytes=64)
    assert [row["a"] for row in read(source, ["a"])] == [7] + [
        row for row in mixture if isinstance(row, int)
    ]
    assert source.skipped_rows == sum(isinstance(row, str) for row in mixture)
