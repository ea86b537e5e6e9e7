"""Pipelines: passes over the rows, saving and loading, and what prediction needs of them."""

from pathlib import Path

import pyarrow as pa
import pytest

import flambeau.features as ft
from flambeau.errors import ConfigError, DataError
from flambeau.features.fitting import memory_bytes, passes

SCHEMA = pa.schema({"a": pa.string(), "b": pa.int64(), "c": pa.string()})


def test_operations_that_do_not_depend_on_each_other_share_a_pass() -> None:
    operations = [
        ft.Categorify("a"),
        ft.Categorify("b"),
        ft.Categorify("a", out="again"),
        ft.Categorify("again", out="third"),
        ft.Categorify("c"),
    ]
    assert passes(operations, SCHEMA) == [[0, 1, 4], [2], [3]]


def test_an_operation_sees_what_those_before_it_made() -> None:
    data = {"x": ["a", "a", "b", "c", "c", "c"]}
    pipeline = ft.Pipeline([ft.Categorify("x", min_count=2), ft.Categorify("x", out="y")])
    found = pipeline.fit(data).transform(data)
    assert found["x"].to_pylist() == [2, 2, 0, 1, 1, 1]
    assert found["y"].to_pylist() == [2, 2, 3, 1, 1, 1]


def test_a_saved_pipeline_does_the_same(tmp_path: Path) -> None:
    data = {"x": ["a", "b", None, "a"], "y": [[1, 2], [2], [], None]}
    pipeline = ft.Pipeline([ft.Categorify(["x", "y"])]).fit(data)
    pipeline.save(tmp_path / "saved")
    loaded = ft.Pipeline.load(tmp_path / "saved")
    assert loaded.transform(data).equals(pipeline.transform(data))
    assert loaded.digest == pipeline.digest
    assert loaded.operations == pipeline.operations
    other = ft.Pipeline([ft.Categorify(["x", "y"])]).fit({"x": ["a"], "y": [[1]]})
    assert other.digest != pipeline.digest


def test_saving_replaces_a_pipeline_and_nothing_else(tmp_path: Path) -> None:
    pipeline = ft.Pipeline([ft.Categorify("x")]).fit({"x": [1]})
    pipeline.save(tmp_path / "saved")
    pipeline.save(tmp_path / "saved")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="has files that are not those of a pipeline"):
        pipeline.save(tmp_path / "mine")
    with pytest.raises(ConfigError, match="not fitted"):
        ft.Pipeline([ft.Categorify("x")]).save(tmp_path / "other")


def test_a_damaged_pipeline_is_refused(tmp_path: Path) -> None:
    ft.Pipeline([ft.Categorify("x")]).fit({"x": [1]}).save(tmp_path / "saved")
    (table,) = (tmp_path / "saved").glob("*.parquet")
    table.write_bytes(table.read_bytes()[:20])
    with pytest.raises(DataError, match="cannot be read"):
        ft.Pipeline.load(tmp_path / "saved")
    (tmp_path / "saved" / "pipeline.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        ft.Pipeline.load(tmp_path / "saved")
    with pytest.raises(DataError, match="there is no pipeline in"):
        ft.Pipeline.load(tmp_path)


def test_only_operations_for_what_is_needed_are_applied() -> None:
    data = {"x": ["a", "b"], "rating": [1, 2]}
    pipeline = ft.Pipeline([ft.Categorify(["x", "rating"], out=["x", "label"])]).fit(data)
    bound = pipeline.bind(pa.schema({"x": pa.string()}), ["x"])
    assert bound.columns == ("x",)
    assert bound(pa.record_batch({"x": ["b"]})).to_pydict() == {"x": [2]}
    assert pipeline.columns_from(["x", "other"]) == ("x", "other")
    with pytest.raises(DataError, match="no column 'rating', of which features are made"):
        pipeline.bind(pa.schema({"x": pa.string()}), ["label"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, 1 << 30), (5000, 5000), ("4G", 4 << 30), ("1.5 MB", 3 << 19), ("64k", 1 << 16)],
)
def test_memory_is_bytes_or_a_text(given: object, expected: int) -> None:
    assert memory_bytes(given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["lots", 0, "-1G", "4 X"])
def test_other_memory_is_an_error(given: object) -> None:
    with pytest.raises(ConfigError, match="memory="):
        memory_bytes(given)  # type: ignore[arg-type]
