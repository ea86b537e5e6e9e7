"""What is worth a faster way than torch's own."""

import torch
from torch import Tensor

#: Multiplications from which on the time saved is more than a call takes longer.
_LARGE = 1 << 23


def is_large(x: Tensor, multiplications: int) -> bool:
    """Whether a product with `x` is large, in float32 and on a CPU."""
    return (
        not torch.compiler.is_compiling()  # first: a graph must not depend on the number of rows
        and multiplications >= _LARGE
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )


def in_one_thread() -> bool:
    """Whether torch has one thread here, as workers do; with several its own ways are faster."""
    return torch.get_num_threads() == 1
