"""`horovod.torch.optimizer`."""

from flambeau.compat.horovod.optimizer import (
    DistributedOptimizer,
)

__all__ = [
    "DistributedOptimizer",
]
