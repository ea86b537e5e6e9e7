"""Checksums of rows: equal for the same rows in any order, and for no others."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flambeau.features.engines.checksum import checksum

ROWS: dict[str, list[Any]] = {
    "number": [1, 2, None, -(2**63)],
    "real": [0.5, None, float("nan"), -1.0],
    "text": ["a", "", None, "ü"],
    "list": [[1, 2], [], None, [None]],
    "nested": [[["a"], []], [None], None, [["a", "b"]]],
    "struct": [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None, {"x": 2, "y": None}],
    "decimal": [Decimal("1.5"), None, Decimal("2.5"), Decimal("0.0")],
    "bytes": [b"\xff", b"", None, b"\x00"],
    "nothing": [None, None, None, None],
}


def batch(**changed: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(ROWS | changed)


def test_order_and_batches_make_no_difference() -> None:
    whole = checksum(batch())
    assert checksum(batch().take(pa.array([2, 0, 3, 1]))) == whole
    parts = [checksum(batch().slice(0, 3)), checksum(batch().slice(3))]
    assert sum(parts) % (1 << 64) == whole


def test_a_row_that_is_there_twice_counts_twice() -> None:
    twice = pa.concat_batches([batch(), batch().slice(0, 1)])
    assert checksum(twice) not in (checksum(batch()), checksum(batch().slice(1)))
    assert checksum(twice) == (checksum(batch()) + checksum(batch().slice(0, 1))) % (1 << 64)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("number", [1, 2, 0, -(2**63)]),
        ("number", [2, 1, None, -(2**63)]),
        ("text", ["a", None, "", "ü"]),
        ("list", [[2, 1], [], None, [None]]),
        ("list", [[1], [2], None, [None]]),
        ("list", [[1, 2], None, [], [None]]),
        ("nested", [[["a", "b"]], [None], None, [["a"], []]]),
        ("struct", [{"x": None, "y": "a"}, {"x": 1, "y": "b"}, None, {"x": 2, "y": None}]),
        ("decimal", [Decimal("1.5"), Decimal("2.5"), None, Decimal("0.0")]),
        ("bytes", [b"\xfe", b"", None, b"\x00"]),
    ],
)
def test_other_values_have_another_sum(name: str, values: list[Any]) -> None:
    assert checksum(batch(**{name: values})) != checksum(batch())


def test_values_that_move_to_another_column_change_the_sum() -> None:
    one = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    other = pa.record_batch({"a": [3, 2], "b": [1, 4]})
    assert checksum(one) != checksum(other)


def test_dictionaries_count_as_their_values() -> None:
    texts = pa.array(["a", "b", None])
    plain, coded = ({"text": column} for column in (texts, texts.dictionary_encode()))
    assert checksum(pa.record_batch(plain)) == checksum(pa.record_batch(coded))
