"""64-bit keys for values of any type, for counting and lookups."""

from typing import Any

import numpy as np
import pyarrow as pa

from flambeau.data.arrow_columns import is_text
from flambeau.data.text_hash import hash_texts

Keys = np.ndarray[Any, np.dtype[np.int64]]

#: All columns of texts have the same salt, since each vocabulary belongs to certain columns.
_SALT = "vocabulary"
_NAN = np.float64("nan").view(np.int64)


def item_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, or of the items of its lists."""
    types = pa.types
    if types.is_dictionary(kind):
        return item_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return item_type(kind.value_type)
    return kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether rows of a column are lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def plain_values(column: pa.Array) -> pa.Array:
    """Return the values of a column, or the items of all its lists, without dictionaries."""
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    return plain_values(column.flatten()) if is_list(column.type) else column


def keys_of(values: pa.Array) -> Keys:
    """Return a key for each value: an integer is its own key. Missing values have any key.

    Equal values have equal keys, and different values have different keys, except for texts: among
    a hundred million texts, the probability that any two share a key is 1 in 3,700.
    """
    kind = values.type
    types = pa.types
    if is_text(kind):
        return hash_texts(values, _SALT)
    if types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif types.is_floating(kind):
        return _float_keys(values)
    elif types.is_uint64(kind):
        values = values.view(pa.int64())
    elif not types.is_integer(kind):
        raise TypeError("give texts, integers, numbers or times")
    filled = values.fill_null(0) if values.null_count else values
    numbers: Keys = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), np.int64)
    return numbers


def values_of(keys: Keys, kind: pa.DataType) -> pa.Array:
    """Return the values of a type from their keys; not for texts, which keys do not contain."""
    types = pa.types
    if types.is_floating(kind):
        return pa.array(keys.view(np.float64)).cast(kind)
    if types.is_uint64(kind):
        return pa.array(keys).view(kind)
    if types.is_temporal(kind):
        narrow = kind.bit_width == 32
        return pa.array(keys.astype(np.int32) if narrow else keys).view(kind)
    return pa.array(keys).cast(kind)


def _float_keys(values: pa.Array) -> Keys:
    """Return the bits of numbers; all zeros have the same bits, and so have all NaNs."""
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    bits: Keys = numbers.view(np.int64)
    bits[np.isnan(numbers)] = _NAN
    return bits
