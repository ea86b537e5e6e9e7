"""Rows of tables divided by the hashes of their values."""

import numpy as np
import pyarrow as pa

from flambeau.features.keys import keys_of
from flambeau.features.statistics.kernels import partition_of

PARTITIONS = 16


def in_partitions(table: pa.Table, salt: int = 0) -> dict[int, pa.Table]:
    """Return the rows of each partition of the column `value`; missing ones are in the first."""
    values = table["value"].combine_chunks()
    parts = np.empty(len(values), np.uint8)
    partition_of(keys_of(values), PARTITIONS, salt, parts)
    if values.null_count:
        parts[values.is_null().to_numpy(zero_copy_only=False)] = 0
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(PARTITIONS + 1))
    table = table.take(pa.array(order))
    return {
        part: table.slice(bounds[part], bounds[part + 1] - bounds[part])
        for part in range(PARTITIONS)
    }
