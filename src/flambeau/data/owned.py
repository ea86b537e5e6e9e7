"""Arrow's numbers as tensors."""

import numpy as np
import pyarrow as pa
import torch


def owned(column: pa.Array, *, narrow: bool) -> torch.Tensor:
    """A copy, as the memory may be a mapped file: changing that in place would end the process.

    With `narrow` float64 becomes float32 on the way.
    """
    if narrow and column.type == pa.float64():
        return torch.from_numpy(column.to_numpy(zero_copy_only=False).astype(np.float32))
    return torch.from_numpy(column.to_numpy(zero_copy_only=False, writable=True))
