"""DistributedOptimizer, which reduces gradients while backward computes the others."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from flambeau.compat.horovod.compression import Compression, Compressor
from flambeau.compat.horovod.engine.running import engine
from flambeau.compat.horovod.negotiation.messages import ALL
from flambeau.compat.horovod.operations.handles import Adasum, Average
from flambeau.compat.horovod.optimizer.adasum import adasum_optimizer
from flambeau.compat.horovod.optimizer.gradients import GradientReducer, named_list
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


class _Distributed:
    """A mixin for the class of an optimizer. `_hvd` reduces its gradients."""

    _hvd: GradientReducer
    _should_synchronize: bool
    _synchronized: bool
    param_groups: list[dict[str, Any]]

    def synchronize(self) -> None:
        """Wait until all gradients are reduced, for example to clip them before `step`."""
        self._hvd.finish()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Prevent `step` from synchronizing again after a call of `synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Wait until all gradients are reduced, and make a step."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to "
                    "consider using optimizer.skip_synchronize() context if you use "
                    "optimizer.synchronize() in your code.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Reset the gradients; raise an error while they are being reduced."""
        if self._hvd.in_flight:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can cause "
                "a race condition."
            )
        return super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; their gradients are reduced, too."""
        super().add_param_group(param_group)  # type: ignore[misc]
        if "_hvd" in self.__dict__:
            self._hvd.add(self.param_groups[-1]["params"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replace the state; gradients in flight are dropped."""
        self._hvd.drop()
        self._synchronized, self._should_synchronize = False, True
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes before gradients are reduced."""
        self._hvd.set_passes(passes)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer that reduces gradients over ranks before each step.

    Its class is a subclass of the optimizer's; it shares the optimizer's settings and state.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups:
        warnings.warn("num_groups is deprecated: give groups=", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    # The same name on all ranks: they create their optimizers in the same order.
    prefix = engine().name("optimizer", None, ALL)
    names = named_list(optimizer.param_groups, named_parameters, prefix)
    if op == Adasum:
        return adasum_optimizer(optimizer, names, compression)
    cls: Any = type(optimizer.__class__.__name__, (_Distributed, optimizer.__class__), {})
    found = cls.__new__(cls)
    found.__dict__.update(optimizer.__dict__)
    # A learning rate schedule may have set the original `step` on the instance.
    found.__dict__.pop("step", None)
    found._should_synchronize, found._synchronized = True, False
    found._hvd = GradientReducer(
        [each for group in optimizer.param_groups for each in group["params"]],
        names,
        compression=compression,
        passes=backward_passes_per_step,
        op=op,
        predivide=gradient_predivide_factor,
        groups=groups,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
        prefix=prefix,
    )
    return found
