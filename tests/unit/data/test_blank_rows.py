"""Rows with nothing in them."""

import pyarrow as pa
import pytest

from flambeau.config import Binding
from flambeau.data.binding import Binder, Shape
from flambeau.data.blank_rows import blank_rows
from flambeau.inference.shorthands import expand

VECTOR = pa.struct(
    {
        "type": pa.int8(),
        "size": pa.int32(),
        "indices": pa.list_(pa.int32()),
        "values": pa.list_(pa.float64()),
    }
)
KINDS = [
    pa.bool_(),
    pa.uint64(),
    pa.float16(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.null(),
    pa.date32(),
    pa.timestamp("us"),
    pa.decimal128(9, 2),
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.int64()),
    pa.list_(pa.float32(), 3),
    pa.large_list(pa.string()),
    pa.list_(pa.struct({"id": pa.int64(), "value": pa.float32()})),
    pa.map_(pa.int64(), pa.float32()),
    VECTOR,
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_type_has_a_blank_that_a_model_could_get(kind: pa.DataType) -> None:
    rows = blank_rows(pa.schema({"c": kind}), rows=2)
    assert rows.schema.field("c").type == kind
    binder = Binder(Binding(), lambda c: c, Shape(("c",)), expand=expand)
    assert len(binder.read(rows)["c"]) == 2


def test_columns_that_may_have_nulls_have_one_where_that_is_asked_for() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    assert blank_rows(schema, 2, gaps=True).to_pydict() == {"a": [0, None], "b": [0, 0]}
