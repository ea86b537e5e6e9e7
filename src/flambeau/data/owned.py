"""Arrow arrays of numbers as tensors that own their memory."""

import numpy as np
import pyarrow as pa
import torch


def owned(column: pa.Array, *, narrow: bool) -> torch.Tensor:
    """Return a copy as a tensor: a mapped file must not be changed in place.

    With `narrow`, float64 becomes float32.
    """
    if narrow and column.type == pa.float64():
        return torch.from_numpy(column.to_numpy(zero_copy_only=False).astype(np.float32))
    return torch.from_numpy(column.to_numpy(zero_copy_only=False, writable=True))
