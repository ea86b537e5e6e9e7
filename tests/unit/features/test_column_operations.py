"""Columns that are kept, removed, renamed and made by a function of the user's."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import same, transformed

from flambeau.errors import ConfigError, DataError
from flambeau.features.operation import Operation
from flambeau.features.operations.columns import Custom, Drop, Rename, Select, arrow_type
from flambeau.features.operations.hashing import Hash
from flambeau.features.pipeline import Pipeline

ROWS = {
    "a": [1, None, 3],
    "b": pa.array(["x", "", None], pa.large_string()),
    "C1": [0.5, 1.5, 2.5],
    "C2": [True, False, None],
}
HERE = "test_column_operations"

#: What functions below return, for tests of wrong results.
RETURNED: dict[str, Any] = {}


def twice(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    return {"a2": pc.multiply(columns["a"], 2)}


def lengths(columns: dict[str, pa.Array]) -> dict[str, Any]:
    lengths = pc.utf8_length(columns["b"]).cast(pa.int64())
    return {"n": pa.chunked_array([lengths]), "b": pc.utf8_upper(columns["b"])}


def returned(columns: dict[str, pa.Array]) -> Any:
    return RETURNED["value"]


def custom(name: str, **values: Any) -> Custom:
    settings: dict[str, Any] = {"columns": "a", "out": {"a2": "int64"}, **values}
    return Custom(f"{HERE}:{name}", **settings)


@given(st.lists(st.sampled_from(list(ROWS)), min_size=1, max_size=3, unique=True))
@settings(max_examples=10)
def test_select_keeps_and_drop_removes(names: list[str]) -> None:
    table = pa.table(ROWS)
    kept = [name for name in ROWS if name in names]
    assert same(transformed(Select(names), ROWS), table.select(kept))
    assert same(transformed(Drop(names), ROWS), table.drop_columns(kept))


def test_columns_are_named_by_ranges_and_patterns() -> None:
    assert transformed(Select("C1:C2"), ROWS).schema.names == ["C1", "C2"]
    assert transformed(Drop(["a", "C*"]), ROWS).schema.names == ["b"]


def test_later_operations_do_not_see_what_was_removed() -> None:
    for operation in (Drop("b"), Select(["a"]), Rename({"b": "bb"})):
        with pytest.raises(DataError, match="there is no column 'b'"):
            Pipeline([operation, Hash("b")]).fit(ROWS)


def test_columns_are_renamed_also_in_a_circle() -> None:
    table = pa.table(ROWS)
    found = transformed(Rename({"a": "b", "b": "a", "C1": "x"}), ROWS)
    assert set(found.schema.names) == {"a", "b", "C2", "x"}
    for old, new in {"a": "b", "b": "a", "C1": "x", "C2": "C2"}.items():
        assert found[new].equals(table[old])


def test_a_column_with_the_new_name_is_replaced() -> None:
    found = transformed(Rename({"a": "b"}), ROWS)
    assert found.schema.names == ["b", "C1", "C2"]
    assert found["b"].to_pylist() == ROWS["a"]


def test_only_what_is_needed_is_renamed() -> None:
    pipeline = Pipeline([Rename({"a": "x", "b": "y"}), Hash("y")]).fit(ROWS)
    bound = pipeline.bind(pa.schema({"b": pa.string()}), needed=["y"])
    assert "y" in bound(pa.record_batch({"b": ["x"]})).schema.names


def test_a_function_makes_columns() -> None:
    found = transformed(custom("twice"), ROWS)
    assert found["a2"].to_pylist() == [2, None, 6]
    assert found.schema.names == [*ROWS, "a2"]
    both = transformed(custom("lengths", columns="b", out={"n": "int64", "b": "text"}), ROWS)
    assert both["n"].to_pylist() == [1, 0, None]
    assert both["b"].to_pylist() == ["X", "", None]


def test_a_pipeline_that_runs_code_is_loaded_on_request_only(tmp_path: Path) -> None:
    pipeline = Pipeline([custom("twice")]).fit(ROWS)
    pipeline.save(tmp_path / "saved")
    with pytest.raises(ConfigError) as error:
        Pipeline.load(tmp_path / "saved")
    assert "the operation 'custom', which runs code" in str(error.value)
    assert "load it with trust=True" in str(error.value)
    loaded = Pipeline.load(tmp_path / "saved", trust=True)
    assert loaded.transform(ROWS).equals(pipeline.transform(ROWS))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "custom: test_column_operations:returned returned a list, not a dict of 'a2'"),
        ({"a3": pa.array([1])}, "returned 'a3', not a dict of 'a2'"),
        ({"a2": [1]}, "returned a list for 'a2', and out= says int64: return an Arrow array"),
        ({"a2": pa.array([1.5])}, "returned double for 'a2', and out= says int64"),
        ({"a2": pa.array([1, 2])}, "returned 2 values of 'a2' for 1 row; return one for each"),
    ],
)
def test_wrong_results_are_explained(
    monkeypatch: pytest.MonkeyPatch, value: Any, message: str
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    monkeypatch.setitem(RETURNED, "value", value)
    pipeline = Pipeline([custom("returned")]).fit({"a": [1]})
    with pytest.raises(DataError) as error:
        pipeline.transform({"a": [1]})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("int64", pa.int64()),
        ("text", pa.string()),
        ("list<float32>", pa.list_(pa.float32())),
        ("large_list<text>", pa.large_list(pa.string())),
        ("list<float32>[8]", pa.list_(pa.float32(), 8)),
        ("list<list<int64>[2]>", pa.list_(pa.list_(pa.int64(), 2))),
        ("timestamp[ms]", pa.timestamp("ms")),
    ],
)
def test_types_have_names(name: str, kind: pa.DataType) -> None:
    assert arrow_type(name) == kind


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Select([]), "columns=[]: Tuple should have at least 1 item"),
        (lambda: Drop(), "columns=(): Tuple should have at least 1 item"),
        (lambda: Rename(), "'columns' is missing"),
        (lambda: Rename({}), "columns={}: Dictionary should have at least 1 item"),
        (lambda: Rename({"a": "x", "b": "x"}), "two columns cannot both be called 'x'"),
        (lambda: custom("twice", out={"a2": "int65"}), "there is no type 'int65'; give 'int64'"),
        (lambda: custom("twice", out={}), "at least 1 item"),
        (
            lambda: Custom(function=twice, columns="a", out={"a2": "int64"}),
            "give the import path of a function as a text: 'package.module:name'",
        ),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Select("aa"), "there is no column 'aa'; did you mean 'a'?"),
        (Drop("aa"), "there is no column 'aa'; did you mean 'a'?"),
        (Rename({"aa": "x"}), "rename: there is no column 'aa'; did you mean 'a'?"),
        (custom("nothing"), "function='test_column_operations:nothing' cannot be imported"),
        (custom("HERE"), "function='test_column_operations:HERE' is no function"),
    ],
)
def test_wrong_columns_are_explained(operation: Operation, message: str) -> None:
    with pytest.raises((DataError, ConfigError)) as error:
        Pipeline([operation]).fit(ROWS).transform(ROWS)
    assert message in str(error.value)
