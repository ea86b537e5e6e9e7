"""Blocks of a Ray Dataset have the same columns, of plain types."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray.data.extensions import ArrowTensorArray

from flambeau.clusters.ray.columns import common_schema, plain_columns, with_schema
from flambeau.errors import DataError


def together(*blocks: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of blocks as one table, in which all have the same columns."""
    plain = [plain_columns(block) for block in blocks]
    schema = common_schema(block.schema for block in plain)
    rows: list[dict[str, Any]] = pa.concat_tables(
        [with_schema(block, schema) for block in plain]
    ).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [0.5]),
        ([None], [0.5]),
        ([None], ["a"]),
        ([[], []], [[1, 2], []]),
        ([[1]], [[0.5]]),
    ],
    ids=["whole", "none", "no text", "empty lists", "whole in lists"],
)
def test_blocks_in_which_a_column_has_another_type_are_brought_to_one(
    one: list[Any], other: list[Any]
) -> None:
    rows = together(pa.table({"x": one}), pa.table({"x": other}))
    assert [row["x"] for row in rows] == [*one, *other]


def test_columns_come_by_name_and_those_that_a_block_lacks_have_no_values() -> None:
    rows = together(pa.table({"x": [1], "y": [2]}), pa.table({"z": ["a"], "y": [3], "x": [4]}))
    assert rows == [{"x": 1, "y": 2, "z": None}, {"x": 4, "y": 3, "z": "a"}]


def test_categories_of_blocks_differ_and_their_values_remain() -> None:
    blocks = [pa.table({"x": pa.array(each).dictionary_encode()}) for each in ("ab", "ca")]
    schema = plain_columns(blocks[0]).schema
    assert schema.field("x").type == pa.string()
    assert [row["x"] for row in together(*blocks)] == ["a", "b", "c", "a"]


def test_vectors_of_different_lengths_become_lists() -> None:
    vectors = [np.arange(length) for length in (2, 0, 3)]
    block = pa.table({"x": ArrowTensorArray.from_numpy(vectors)})
    assert [row["x"] for row in together(block.slice(1))] == [[], [0, 1, 2]]


def test_tensors_of_different_shapes_do_not_prevent_the_use_of_other_columns() -> None:
    tensors = [np.ones((length, 2)) for length in (2, 1)]
    block = pa.table({"x": ArrowTensorArray.from_numpy(tensors), "y": [1, 2]})
    assert [row["y"] for row in together(block)] == [1, 2]


def test_types_without_a_common_one_are_an_error_that_names_the_column() -> None:
    with pytest.raises(DataError, match=r"Field x has incompatible types: int64 vs string; cast"):
        together(pa.table({"x": [1]}), pa.table({"x": ["a"]}))


def test_an_id_that_would_lose_digits_is_an_error() -> None:
    lost = r"column 'x' is int64 in a block of the Ray Dataset and double with the others: .*"
    with pytest.raises(DataError, match=lost + str(2**62 + 1)):
        together(pa.table({"x": [2**62 + 1]}), pa.table({"x": [0.5]}))
