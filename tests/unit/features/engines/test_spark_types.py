"""Types of features as Spark has them."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from flambeau.features.engines.spark_frame import spark_type


@pytest.mark.parametrize(
    ("given", "expected", "name"),
    [
        (pa.int64(), pa.int64(), "bigint"),
        (pa.uint8(), pa.int16(), "smallint"),
        (pa.uint32(), pa.int64(), "bigint"),
        (pa.uint64(), pa.decimal128(20, 0), "decimal(20,0)"),
        (pa.float16(), pa.float32(), "float"),
        (pa.large_string(), pa.string(), "string"),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string(), "string"),
        (pa.timestamp("ns"), pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("us", "UTC"), "timestamp"),
        (pa.date64(), pa.date32(), "date"),
    ],
)
def test_values_keep_their_meaning(given: pa.DataType, expected: pa.DataType, name: str) -> None:
    assert spark_type(given) == expected
    assert from_arrow_type(spark_type(given), prefer_timestamp_ntz=True).simpleString() == name


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])
def test_lists_of_any_kind_are_arrays(kind: object) -> None:
    assert callable(kind)
    found = spark_type(pa.struct([("a", kind(pa.uint16()))]))
    assert from_arrow_type(found).simpleString() == "struct<a:array<int>>"
