import datetime

import numpy as np
import pyarrow as pa
import pytest
import torch

from flambeau.data.arrow_columns import to_columns
from flambeau.errors import DataError


def convert(array, **options):
    return to_columns(pa.record_batch({"c": array}), **options)["c"]


NUMBERS = [
    (pa.int8(), torch.int8),
    (pa.int32(), torch.int32),
    (pa.int64(), torch.int64),
    (pa.uint8(), torch.uint8),
    (pa.uint16(), torch.int32),
    (pa.uint32(), torch.int64),
    (pa.uint64(), torch.uint64),
    (pa.float32(), torch.float32),
    (pa.float64(), torch.float64),
]


@pytest.mark.parametrize(("kind", "dtype"), NUMBERS)
def test_numbers_become_tensors(kind, dtype):
    column = convert(pa.array([1, 2, 3], kind).slice(1))
    assert column.dtype == dtype
    assert column.tolist() == [2, 3]


def test_booleans_become_tensors():
    assert torch.equal(convert(pa.array([True, False])), torch.tensor([True, False]))


def test_tensors_may_be_changed_without_changing_the_batch():
    array = pa.array([1, 2])
    convert(array).add_(1)
    assert array.to_pylist() == [1, 2]


def test_decimals_become_floats():
    assert convert(pa.array([1, 2], pa.decimal128(5, 2))).dtype == torch.float64


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms")), 1000),
        (pa.array([datetime.date(1970, 1, 3)]), 2),
        (pa.array([datetime.time(0, 0, 1)], pa.time32("s")), 1),
        (pa.array([5], pa.duration("us")), 5),
    ],
)
def test_times_become_int64(array, expected):
    column = convert(array)
    assert column.dtype == torch.int64
    assert column.tolist() == [expected]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.list_(pa.int32(), 2), pa.large_list(pa.int32())]
)
def test_lists_of_equal_length_become_matrices(kind):
    column = convert(pa.array([[0, 0], [1, 2], [3, 4]], kind).slice(1))
    assert column.dtype == torch.int32
    assert column.tolist() == [[1, 2], [3, 4]]


def test_nested_lists_keep_their_shape():
    assert convert(pa.array([[[1.0, 2], [3, 4], [5, 6]]])).shape == (1, 3, 2)


def test_lists_of_different_length_stay_objects():
    column = convert(pa.array([[1], [2, 3]]))
    assert column.dtype == object
    assert [item.tolist() for item in column] == [[1], [2, 3]]


@pytest.mark.parametrize("encode", [False, True])
def test_strings_become_objects(encode):
    array = pa.array(["x", None, "x"])
    column = convert(array.dictionary_encode() if encode else array)
    assert column.dtype == object
    assert column.tolist() == ["x", None, "x"]


def test_lists_of_strings_stay_objects():
    assert convert(pa.array([["x"], ["y"]])).dtype == object


def test_dictionaries_of_numbers_are_decoded():
    assert convert(pa.array([7, 8, 7]).dictionary_encode()).tolist() == [7, 8, 7]


@pytest.mark.parametrize("array", [pa.array([1.0, None]), pa.array([1.0, None], pa.float32())])
def test_missing_floats_are_nan(array):
    column = convert(array)
    assert torch.isnan(column).tolist() == [False, True]


def test_column_of_nothing_is_nan():
    assert np.isnan(convert(pa.nulls(2)).numpy()).all()


@pytest.mark.parametrize(
    "array", [pa.array([1, 2, None]), pa.array([True, True, None]), pa.array([[1], [2], None])]
)
def test_missing_integers_name_column_and_row(array):
    with pytest.raises(DataError, match="column 'c': a value is missing in row 2"):
        convert(array)


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.array([True, None])])
def test_missing_labels_are_nan_where_allowed(array):
    column = convert(array, nullable=frozenset({"c"}))
    assert column.dtype == torch.float64
    assert column[0] == 1
    assert torch.isnan(column[1])


def test_nullable_columns_without_nulls_keep_their_type():
    assert convert(pa.array([1, 2]), nullable=frozenset({"c"})).dtype == torch.int64


def test_unsigned_ids_keep_their_bits():
    bags = convert(pa.array([[2**63], [2**64 - 1, 5]], pa.list_(pa.uint64())), inputs={"c"})
    assert bags.ids.tolist() == [-(2**63), -1, 5]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int64())])
def test_batches_without_rows_are_converted(kind):
    assert len(convert(pa.array([], kind))) == 0


def test_float64_becomes_float32_where_that_is_asked_for() -> None:
    values = pa.array([[1.0, 2.0], [3.0, 1 / 3]], pa.list_(pa.float64()))
    batch = pa.record_batch({"a": values, "b": values, "c": pa.array([1, 2])})
    found = to_columns(batch, narrow=frozenset({"a", "c"}))
    assert (found["a"].dtype, found["b"].dtype) == (torch.float32, torch.float64)
    assert found["c"].dtype == torch.int64
    torch.testing.assert_close(found["a"], found["b"].float(), rtol=0, atol=0)
    found["a"][0, 0] = 7.0  # its own memory
    assert batch["a"][0][0].as_py() == 1.0
