"""Integers in CSV text that a double would round, which is what Arrow takes them for."""

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = r"^\s*[+-]?[0-9]+\s*$"
#: From here on, a double has no room for all digits of an integer.
_EXACT = float(1 << 53)


def integer_type(texts: pa.Array) -> pa.DataType | None:
    """The type in which integers keep their digits: uint64, or text; None if a double is right."""
    if not pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py():
        return None
    digits = pc.utf8_trim_whitespace(texts)
    if not rounded(digits.cast(pa.float64())):
        return None
    try:
        digits.cast(pa.uint64())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.uint64()


def rounded(numbers: pa.Array) -> bool:
    """Whether some of the doubles are so large that digits may be lost."""
    return bool(pc.any(pc.greater_equal(pc.abs(numbers), _EXACT)).as_py())
