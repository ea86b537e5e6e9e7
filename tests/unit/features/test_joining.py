"""Columns of a table by key, against a Python dict."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import saved_and_loaded, transformed

import flambeau as fb
from flambeau.errors import ConfigError, DataError
from flambeau.features.operations.encodings import CountEncode
from flambeau.features.operations.joining import Join
from flambeau.features.pipeline import Pipeline

ITEMS = {
    "item": ["x", "y", None, "é"],
    "price": [1.5, None, 9.0, 3.0],
    "tags": [[1], [], [2], None],
}
ROWS = {"item": ["é", "x", None, "new", "y", "x"]}
PRICES = [3.0, 1.5, None, None, None, 1.5]

texts = st.none() | st.sampled_from(["", "a", "b", "é", "日本"])
integers = st.none() | st.sampled_from([0, 1, -1, -(1 << 31), (1 << 31) - 1])


@given(
    st.lists(texts, unique=True, max_size=5).map(lambda keys: pa.array(keys, pa.string()))
    | st.lists(integers, unique=True, max_size=5).map(lambda keys: pa.array(keys, pa.int64())),
    st.data(),
)
@settings(max_examples=12)
def test_rows_have_what_the_table_has_for_their_key(keys: pa.Array, data: Any) -> None:
    is_text = pa.types.is_string(keys.type)
    kinds = [pa.string(), pa.large_string()] if is_text else [pa.int32(), pa.int64()]
    drawn = data.draw(st.lists(texts if is_text else integers, min_size=1, max_size=6))
    rows = pa.array(drawn, data.draw(st.sampled_from(kinds)))
    rows = rows.dictionary_encode() if data.draw(st.booleans()) else rows
    numbers = list(range(len(keys)))
    names = [None if n % 3 == 2 else f"name {n}" for n in numbers]
    table = pa.table({"n": numbers, "name": pa.array(names, pa.string()), "k": keys})
    known = {key: i for i, key in enumerate(keys.to_pylist()) if key is not None}
    places = [known.get(row) for row in drawn]
    if not len(keys):
        table = {name: table[name].combine_chunks() for name in table.schema.names}
    found = transformed(Join(table, on="k"), pa.table({"k": rows}))
    assert found.schema.names == ["k", "n", "name"]
    assert found["n"].to_pylist() == places
    assert found["name"].to_pylist() == [None if i is None else names[i] for i in places]


def test_a_table_may_be_a_file_a_frame_a_table_or_a_dict(tmp_path: Path) -> None:
    table = pa.table({"item": ITEMS["item"], "price": ITEMS["price"]})
    path = tmp_path / "items.parquet"
    pq.write_table(table, path)
    given = [path, str(path), [path], fb.files(str(path)), table, pl.DataFrame(table.to_pydict())]
    for each in [*given, table.to_pandas(), table.to_pydict()]:
        found = transformed(Join(each, on="item"), ROWS)
        assert (
            found["price"]
            .to_pandas()
            .astype(object)
            .where(found["price"].to_pandas().notna(), None)
            .tolist()
            == PRICES
        )


def test_any_type_of_column_is_added() -> None:
    table = pa.table(
        {
            "item": ["x", "y"],
            "t": pa.array([1, None], pa.timestamp("s")),
            "d": pa.array([1, None], pa.int32()).cast(pa.date32()).cast(pa.date64()),
            "e": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "c": pa.array(["p", None]).dictionary_encode(),
            "s": pa.array([{"a": [1]}, None]),
        }
    )
    found = transformed(Join(table, on="item"), pa.table({"item": ["y", "x", "z"]}))
    assert found["e"].to_pylist() == [None, [1, 2], None]
    assert found["s"].to_pylist() == [None, {"a": [1]}, None]


def test_columns_are_chosen_and_have_a_prefix() -> None:
    found = transformed(Join(ITEMS, on="item", columns="pri*", prefix="item_"), ROWS)
    assert found.schema.names == ["item", "item_price"]
    assert found["item_price"].to_pylist() == PRICES


def test_only_what_is_needed_is_added() -> None:
    pipeline = Pipeline([Join(ITEMS, on="item", prefix="i_")]).fit(ROWS)
    bound = saved_and_loaded(pipeline).bind(pa.schema({"item": pa.string()}), needed=["i_price"])
    found = bound(pa.record_batch(ROWS))
    assert found["i_price"].to_pylist() == PRICES
    assert "i_tags" not in found.schema.names


def test_integers_beyond_int64_are_no_negative_ones() -> None:
    big = (1 << 64) - 1
    unsigned, signed = pa.array([big, 7], pa.uint64()), pa.array([-1, 7], pa.int64())
    cases = [(unsigned, signed, [None, 1]), (signed, unsigned, [None, 1])]
    cases += [(unsigned, unsigned, [0, 1]), (signed, pa.array([7, -1], pa.int8()), [1, 0])]
    for keys, rows, expected in cases:
        table = pa.table({"k": keys, "n": [0, 1]})
        assert transformed(Join(table, on="k"), pa.table({"k": rows}))["n"].to_pylist() == expected


def test_added_columns_are_fitted_in_the_same_pass() -> None:
    from flambeau.features.fitting import passes

    operations = [Join(ITEMS, on="item"), CountEncode("price", out="n")]
    pipeline = Pipeline(operations)
    assert passes(operations, pa.schema({"item": pa.string()})) == [[1]]
    assert pipeline.fit(ROWS).transform(ROWS)["n"].to_pylist() == [1, 2, 0, 0, 0, 2]
    assert saved_and_loaded(pipeline).transform(ROWS).equals(pipeline.transform(ROWS))


def test_a_loaded_pipeline_does_without_the_file(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    pq.write_table(pa.table({"item": ["x"], "price": [1.5]}), path)
    pipeline = Pipeline([Join(path, on="item")]).fit(ROWS)
    path.unlink()
    pipeline.save(tmp_path / "saved")
    loaded = Pipeline.load(tmp_path / "saved")
    assert loaded.transform(ROWS)["price"].to_pylist() == [None, 1.5, None, None, None, 1.5]
    with pytest.raises(DataError, match=r"items\.parquet"):
        loaded.fit(ROWS)


def test_a_table_in_memory_is_not_part_of_the_settings(tmp_path: Path) -> None:
    dumped = Join(ITEMS, on="item").dump()
    assert json.loads(json.dumps(dumped)) == dumped
    assert dumped["table"] is None
    pipeline = Pipeline([Join(ITEMS, on="item")]).fit(ROWS)
    with pytest.raises(ConfigError, match=r"make a new Join\(table, on=...\)"):
        saved_and_loaded(pipeline).fit(ROWS)
    pq.write_table(pa.table({"item": ["x"], "price": [1.5]}), tmp_path / "items.parquet")
    join = Join(tmp_path / "items.parquet", on="item", prefix="i_")
    again = Join.load(json.loads(json.dumps(join.dump())))
    assert Pipeline([again]).fit(ROWS).transform(ROWS)["i_price"][1].as_py() == 1.5


def test_a_table_that_has_changed_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    pq.write_table(pa.table({"item": ["x"], "price": [1.5]}), path)
    pipeline = Pipeline([Join(path, on="item")]).fit(ROWS)
    pq.write_table(pa.table({"item": ["x"], "price": ["dear"]}), path)
    with pytest.raises(DataError, match="the table has other columns than before"):
        pipeline.fit(ROWS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Join(ITEMS), "'on' is missing"),
        (lambda: Join(3, on="item"), "table=3: give fb.files(...), a path, a data frame, an Arrow"),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (
            Join(ITEMS, on="itm"),
            "join: the rows have no column 'itm' for on=; did you mean 'item'?",
        ),
        (Join({"itm": [1]}, on="item"), "join: the table has no column 'item' for on=; did you"),
        (Join(ITEMS, on="item", columns="cost"), "join: in the table, there is no column 'cost'"),
        (Join({"item": [1]}, on="item"), "holds string in the rows and int64 in the table; Cast"),
        (Join({"item": [[1]]}, on="item"), "the key 'item' holds list<item: int64>: give texts"),
        (
            Join({"item": ["b", "a", "b"], "m": [1, 2, 3]}, on="item"),
            "join: the table has several rows with item='b'; keep one of them",
        ),
        (Join({"item": ["a"], "n": [1]}, on="item"), "the rows have a column 'n' already; give"),
        (Join("/nowhere/items.parquet", on="item"), "/nowhere/items.parquet"),
    ],
)
def test_wrong_tables_are_explained(operation: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        Pipeline([operation]).fit({"item": ["a"], "n": [0]})
    assert message in str(error.value)
