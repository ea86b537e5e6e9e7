"""Operations for texts and crosses, which binders call; they are loaded when needed."""

import pyarrow as pa

from flambeau.data.raw_columns import Operations, Shorthand


def expand(shorthand: Shorthand, schema: pa.Schema) -> Operations:
    """Return the operations that a shorthand stands for, for rows of these types."""
    from flambeau.features import shorthands  # loads Numba, which is rarely needed

    return shorthands.expand(shorthand, schema)
