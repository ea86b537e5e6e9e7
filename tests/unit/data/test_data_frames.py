"""Data frames as columns."""

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from flambeau.config import Binding
from flambeau.config.data import is_frame
from flambeau.data.binding import Binder, Shape
from flambeau.data.frames import as_table
from flambeau.data.jagged import Jagged
from flambeau.data.loader import in_order
from flambeau.data.sources.frame_source import frame_source
from flambeau.errors import DataError
from flambeau.inference.shorthands import expand

COLUMNS: dict[str, Any] = {
    "age": [31, 45, 50],
    "price": [0.5, None, 1.5],
    "city": ["Rome", None, "Oslo"],
    "vector": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "seen": [[1, 2], [], [3]],
    "user": [2**63 + 1, 1, 2],
}


def pandas_frame() -> pd.DataFrame:
    typed = {
        **COLUMNS,
        "user": np.array(COLUMNS["user"], np.uint64),
        "vector": [np.array(vector) for vector in COLUMNS["vector"]],
        "price": [0.5, np.nan, 1.5],
    }
    return pd.DataFrame(typed, index=["a", "b", "c"])


FRAMES: dict[str, Any] = {
    "pandas": pandas_frame,
    "pandas with texts of its own type": lambda: pandas_frame().convert_dtypes(),
    "polars": lambda: pl.DataFrame(COLUMNS, schema_overrides={"user": pl.UInt64}),
    "pyarrow": lambda: pa.table({**COLUMNS, "user": pa.array(COLUMNS["user"], pa.uint64())}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_give_their_columns_and_no_index(kind: str) -> None:
    frame = FRAMES[kind]()
    assert is_frame(frame)
    table = as_table(frame, "train=")
    assert table.to_pydict() == COLUMNS


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0, 1]], ids=["in order", "mixed"])
def test_rows_of_frames_meet_a_model_as_rows_of_files_do(kind: str, rows: list[int]) -> None:
    source = frame_source(as_table(FRAMES[kind](), "train="), "train=")
    settings = Binding(
        inputs={"x": ["price", "age"], "v": "vector", "ids": "city", "bags": "seen"},
        fill=0.0,
        keys=("city", "user"),
    )
    binder = Binder(settings, lambda x, v, ids, bags: None, Shape(source.columns), expand=expand)
    batch = binder.prepare(source.take(np.array(rows), binder.columns))
    expected = np.array([[0.5, 31.0], [0.0, 45.0], [1.5, 50.0]])
    assert batch["x"].tolist() == expected[rows].tolist()
    assert batch["vector"].tolist() == np.array(COLUMNS["vector"])[rows].tolist()
    assert isinstance(batch["ids"], Jagged)
    assert batch["ids"].lengths.tolist() == np.array([1, 0, 1])[rows].tolist()
    assert isinstance(batch["bags"], Jagged)
    assert binder.key(batch, "city").tolist() == [COLUMNS["city"][row] for row in rows]
    assert binder.key(batch, "user").tolist() == [COLUMNS["user"][row] for row in rows]


def test_the_length_of_vectors_is_known_without_them() -> None:
    schema = as_table(pandas_frame(), "train=").schema
    assert schema.field("vector").type == pa.list_(pa.float64(), 2)
    assert schema.field("seen").type == pa.large_list(pa.int64())


def test_an_index_with_a_name_is_left_out_too() -> None:
    assert as_table(pandas_frame().set_index("age"), "train=").schema.names == list(COLUMNS)[1:]


@pytest.mark.parametrize("make", [pd.Series, pl.Series])
def test_categories_are_texts(make: Any) -> None:
    kind = "category" if make is pd.Series else pl.Categorical
    values = make(["a", "b", "a"], dtype=kind)
    frame = pd.DataFrame({"c": values}) if make is pd.Series else pl.DataFrame({"c": values})
    table = as_table(frame, "train=")
    assert table.schema.field("c").type == pa.large_string()
    assert table.to_pydict() == {"c": ["a", "b", "a"]}


def test_vectors_of_a_fixed_size_are_tensors() -> None:
    column = pl.Series([[1.0, 2.0], [3.0, 4.0]], dtype=pl.Array(pl.Float32, 2))
    source = frame_source(as_table(pl.DataFrame({"x": column}), "train="), "train=")
    binder = Binder(Binding(), lambda x: None, Shape(source.columns), expand=expand)
    (batch,) = in_order(source, binder, 8)
    assert batch["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": ["x", 3]}), "train= is a DataFrame .*column a"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "train= .*Duplicate column names"),
        (
            pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
            "train= .*exists 2 times",
        ),
        (pl.Series("a", [1]), "train= is a Series .*non-struct"),
        (pd.DataFrame({"a": []}), "train= has no rows"),
        (pl.DataFrame(), "train= has no columns"),
    ],
    ids=["mixed", "two names", "two names in Arrow", "a column", "no rows", "nothing"],
)
def test_what_is_no_table_of_columns_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        frame_source(as_table(frame, "train="), "train=")


def test_neither_library_is_imported_for_others() -> None:
    code = (
        "import sys; from flambeau.config.data import is_frame; import flambeau.data.frames; "
        "assert not is_frame({'a': [1]}); assert 'pandas' not in sys.modules; "
        "assert 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
