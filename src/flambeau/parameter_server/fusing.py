"""Selection of torch's fastest CPU kernels that give the same result."""

from typing import Any

import torch
from torch.optim import Optimizer

_FUSED = (torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW)
_EXCLUDES_FUSED = (
    *("foreach", "differentiable", "maximize"),
    # The first update is not dampened, so momentum that starts as zeros would differ.
    "dampening",
)
_DTYPES = (torch.float32, torch.float64)


def fuse(optimizer: Optimizer) -> None:
    """Enable the fused kernels in the groups that allow them, and disable them in the others."""
    for group in optimizer.param_groups:
        if group.get("capturable"):
            group["capturable"] = False  # set by workers with a GPU; torch rejects it on a CPU
        if type(optimizer) in _FUSED:
            group["fused"] = _can_fuse(group)


def start_momentum(optimizer: Optimizer) -> None:
    """Set missing momentum to zero where the fused kernel needs it.

    Fused SGD fails when some parameters get their first gradient later than others.
    """
    groups = optimizer.param_groups if type(optimizer) is torch.optim.SGD else []
    for group in groups:
        if group["fused"] and group["momentum"]:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                state.setdefault("momentum_buffer", torch.zeros_like(parameter))


def _can_fuse(group: dict[str, Any]) -> bool:
    return (
        group["fused"] is not False
        and not any(group.get(name) for name in _EXCLUDES_FUSED)
        and all(parameter.dtype in _DTYPES for parameter in group["params"])
    )
