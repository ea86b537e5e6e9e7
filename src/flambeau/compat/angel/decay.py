"""Angel's learning rate schedule."""

from typing import final

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


@final
class EpochDecay(LRScheduler):
    """Schedule stepSize / (1 + decay x (epoch - 1)) for epochs from 1; advanced once per epoch."""

    def __init__(self, optimizer: Optimizer, decay: float) -> None:
        self.decay = decay
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        """Return the learning rate of each parameter group."""
        return [float(base) / (1.0 + self.decay * self.last_epoch) for base in self.base_lrs]
