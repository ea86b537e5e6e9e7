"""The optimizer of Adasum: each rank makes its own step, then the changes are combined."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from flambeau.compat.horovod.compression import Compressor
from flambeau.compat.horovod.operations.handles import Adasum, start, synchronize, work_of


class _AdasumOptimizer:
    """A mixin for the class of an optimizer."""

    _names: dict[Tensor, str]
    _compression: type[Compressor]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Make a step on this rank, and apply the combined changes of all ranks.

        Every step combines the changes, after however many backward passes.
        """
        starts = {each: each.detach().clone() for each in self._names if each.requires_grad}
        loss = super().step(closure)  # type: ignore[misc]
        self._combine(starts)
        return loss

    def _combine(self, starts: dict[Tensor, Tensor]) -> None:
        sent: dict[Tensor, tuple[int, Any]] = {}
        for parameter, before in starts.items():
            change, context = self._compression.compress(parameter.detach() - before)
            name = f"change.{self._names[parameter]}"
            work = work_of("adasum", change, name, target=change, op=Adasum)
            sent[parameter] = start(work, wake=False), context
        for parameter, (handle, context) in sent.items():
            combined = self._compression.decompress(synchronize(handle), context)
            with torch.no_grad():
                parameter.copy_(starts[parameter] + combined)

    def synchronize(self) -> None:
        """Do nothing: there are no gradients in flight."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Raise: changes are combined in `step`."""
        raise AssertionError("skip_synchronize() is not supported with op=hvd.Adasum")

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Do nothing: each call of `step` combines the changes."""


def adasum_optimizer(
    optimizer: Optimizer, names: dict[Tensor, str], compression: type[Compressor]
) -> Any:
    """Return an optimizer that combines the changes of all ranks by Adasum."""
    cls: Any = type(optimizer.__class__.__name__, (_AdasumOptimizer, optimizer.__class__), {})
    found = cls.__new__(cls)
    found.__dict__.update(optimizer.__dict__)
    found.__dict__.pop("step", None)
    found._names, found._compression = names, compression
    return found
