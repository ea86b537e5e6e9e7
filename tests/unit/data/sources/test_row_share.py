"""Shares of rows: every row is in one of those that meet."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb
from flambeau.config import FileData
from flambeau.data.source import StreamedSource
from flambeau.data.sources.opening import open_source
from flambeau.errors import ConfigError, DataError


def values(data: FileData) -> list[int]:
    source = open_source(data, lambda ref: None)
    assert isinstance(source, StreamedSource)
    found: list[int] = []
    for shard in source.shards():
        read = [batch["x"].to_pylist() for batch in source.read(shard, ["x"])]
        assert sum(map(len, read)) == shard.rows
        found += [value for batch in read for value in batch]
    return found


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("parts")
    for number in range(3):
        table = pa.table({"x": range(100 * number, 100 * number + 100)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=30)
    return str(folder)


@given(bound=st.floats(0.01, 0.99))
def test_shares_that_meet_have_each_row_once(parts: str, bound: float) -> None:
    first = values(fb.files(parts, share=(0, bound)))
    second = values(fb.files(parts, share=(bound, 1)))
    assert first + second == list(range(300))
    assert len(first) == int(300 * bound + 1e-3)  # not one row off by rounding


def test_a_part_of_a_shard_of_a_share_is_the_right_one(parts: str) -> None:
    source = open_source(fb.files(parts, share=(0.25, 0.5)), lambda ref: None)
    assert isinstance(source, StreamedSource)
    first = source.shards()[0]
    (batch,) = source.read(first, ["x"], 3, 5)
    assert batch["x"].to_pylist() == [78, 79]


def test_lines_of_text_have_shares(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("x\n" + "\n".join(map(str, range(10))) + "\n")
    assert values(fb.files(file, share=(0.5, 0.8))) == [5, 6, 7]


@pytest.mark.parametrize("share", [(0.5, 0.5), (0.2, 1.5), (0.5, 0.2)])
def test_what_is_no_share_is_an_error(share: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=r"give two fractions of the rows"):
        fb.files("clicks", share=share)


def test_images_have_no_shares(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    from PIL import Image

    Image.new("RGB", (2, 2)).save(tmp_path / "cat" / "a.png")
    with pytest.raises(DataError, match=r"share= is for tables and texts"):
        open_source(fb.files(tmp_path, "images", share=(0, 0.5)), lambda ref: None)
