"""What binders call for texts and crosses; it loads the operations when there are some."""

import pyarrow as pa

from flambeau.data.raw_columns import Operations, Shorthand


def expand(shorthand: Shorthand, schema: pa.Schema) -> Operations:
    """Return what a shorthand does with rows of these types."""
    from flambeau.features import shorthands  # loads Numba, which few need

    return shorthands.expand(shorthand, schema)
