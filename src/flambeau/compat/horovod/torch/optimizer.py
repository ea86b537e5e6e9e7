"""`horovod.torch.optimizer`."""

from flambeau.compat.horovod.optimizer.distributed import (
    DistributedOptimizer,
)

__all__ = [
    "DistributedOptimizer",
]
