"""Optimizers of table rows: their state, their arguments, and the kernel that applies them."""

import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.tables import updates
from flambeau.tables.slabs import Place

Array = np.ndarray[Any, Any]


class RowOptimizer(ABC):
    """Optimizer that updates rows by their gradients; each push passes `lr` and `step`.

    `clip` limits the norm of a row's gradient; `weight_decay` times the row is added to the
    gradient.
    """

    #: Size of a row's state: `per_column` numbers per column, plus `per_row` numbers.
    per_column: ClassVar[int] = 0
    per_row: ClassVar[int] = 0

    def __init__(self, lr: float, weight_decay: float = 0.0, clip: float | None = None) -> None:
        self.lr, self.weight_decay, self.clip = lr, weight_decay, clip

    def state_width(self, dim: int) -> int:
        """Return how many numbers of state a row of `dim` values has."""
        return self.per_column * dim + self.per_row

    @property
    def first_state(self) -> float:
        """Initial value of all numbers of the state."""
        return 0.0

    def update(
        self, rows: Array, grads: Array, values: Place, state: Place, lr: float, step: int
    ) -> None:
        """Apply gradients [n, dim] to distinct rows, in place."""
        kind = grads.dtype.type
        if self.clip is not None:
            given, grads = grads, np.empty_like(grads)
            updates.clipped(given, kind(self.clip), grads)
        self._apply(rows, grads, values, state, lr, step, kind)

    @abstractmethod
    def _apply(
        self,
        rows: Array,
        grads: Array,
        values: Place,
        state: Place,
        lr: float,
        step: int,
        kind: Any,
    ) -> None:
        """Call the kernel with scalars of the gradients' type, `kind`."""


@final
class Sgd(RowOptimizer):
    """Plain stochastic gradient descent."""

    def __init__(self, lr: float = 0.01, **shared: Any) -> None:
        super().__init__(lr, **shared)

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        decay = kind(self.weight_decay)
        updates.sgd(rows, grads, values, kind(lr), decay)


class _Momentum(RowOptimizer):
    per_column = 1
    nesterov: ClassVar[bool] = False

    def __init__(self, lr: float = 0.01, momentum: float = 0.9, **shared: Any) -> None:
        super().__init__(lr, **shared)
        self.momentum = momentum

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        updates.momentum(
            rows,
            grads,
            values,
            state,
            kind(lr),
            kind(self.weight_decay),
            kind(self.momentum),
            self.nesterov,
        )


@final
class Momentum(_Momentum):
    """Gradient descent with momentum."""


@final
class Nesterov(_Momentum):
    """Gradient descent with Nesterov momentum."""

    nesterov = True


class _Accumulating(RowOptimizer):
    """Optimizers that divide by the root of the accumulated squares of gradients."""

    kernel: ClassVar[Any]

    def __init__(
        self, lr: float = 0.01, eps: float = 1e-10, initial: float = 0.0, **shared: Any
    ) -> None:
        super().__init__(lr, **shared)
        self.eps, self.initial = eps, initial

    @property
    def first_state(self) -> float:
        return self.initial

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        type(self).kernel(
            rows,
            grads,
            values,
            state,
            kind(lr),
            kind(self.weight_decay),
            kind(self.eps),
        )


@final
class Adagrad(_Accumulating):
    """Adagrad with one accumulator per number."""

    per_column = 1
    kernel = staticmethod(updates.adagrad)


@final
class RowwiseAdagrad(_Accumulating):
    """Adagrad with one accumulator per row: a sixteenth of the state at 16 columns."""

    per_row = 1
    kernel = staticmethod(updates.rowwise_adagrad)


class _Adam(RowOptimizer):
    per_column = 2
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        **shared: Any,
    ) -> None:
        super().__init__(lr, **shared)
        self.betas, self.eps = (float(betas[0]), float(betas[1])), eps

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        beta1, beta2 = self.betas
        rate = lr * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
        shrink = 1.0 - lr * self.weight_decay if self.decoupled else 1.0
        decay = 0.0 if self.decoupled else self.weight_decay
        updates.adam(
            rows,
            grads,
            values,
            state,
            kind(rate),
            kind(shrink),
            kind(decay),
            kind(beta1),
            kind(beta2),
            kind(self.eps),
        )


@final
class Adam(_Adam):
    """Lazy Adam: rows without a gradient do not change."""


@final
class AdamW(_Adam):
    """Lazy Adam with decoupled weight decay."""

    decoupled = True

    def __init__(self, lr: float = 1e-3, weight_decay: float = 1e-2, **others: Any) -> None:
        super().__init__(lr, weight_decay=weight_decay, **others)


@final
class RmsProp(RowOptimizer):
    """RMSprop: divides by a running root mean square of the gradients."""

    per_column = 1

    def __init__(
        self, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8, **shared: Any
    ) -> None:
        super().__init__(lr, **shared)
        self.alpha, self.eps = alpha, eps

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        updates.rmsprop(
            rows,
            grads,
            values,
            state,
            kind(lr),
            kind(self.weight_decay),
            kind(self.alpha),
            kind(self.eps),
        )


@final
class Ftrl(RowOptimizer):
    """FTRL (follow the regularised leader); `l1` makes rows sparse."""

    per_column = 2

    def __init__(
        self,
        lr: float = 0.1,
        l1: float = 0.0,
        l2: float = 0.0,
        beta: float = 1.0,
        clip: float | None = None,
    ) -> None:
        super().__init__(lr, clip=clip)
        self.l1, self.l2, self.beta = l1, l2, beta

    def _apply(self, rows, grads, values, state, lr, step, kind):  # type: ignore[no-untyped-def]
        updates.ftrl(
            rows,
            grads,
            values,
            state,
            kind(lr),
            kind(self.l1),
            kind(self.l2),
            kind(self.beta),
        )


OPTIMIZERS: dict[str, type[RowOptimizer]] = {
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
    "ftrl": Ftrl,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "rmsprop": RmsProp,
    "rowwise_adagrad": RowwiseAdagrad,
    "sgd": Sgd,
}

_SHARED = ("weight_decay", "clip")


def build_row_optimizer(spec: OptimizerSpec) -> RowOptimizer:
    """Build the optimizer of a setting; raise `ConfigError` for unknown names and arguments."""
    if spec.name not in OPTIMIZERS:
        hint = nearest(spec.name, OPTIMIZERS)
        raise ConfigError(f"'{spec.name}' is not an optimizer for tables; {hint}")
    kind = OPTIMIZERS[spec.name]
    own = [name for name in inspect.signature(kind).parameters if name not in ("shared", "others")]
    inherited = {Ftrl: (), AdamW: ("betas", "eps", *_SHARED)}.get(kind, _SHARED)
    known = {*own, *inherited}
    for argument in spec.args:
        if argument not in known:
            hint = nearest(argument, known)
            raise ConfigError(f"table optimizer '{spec.name}' takes no '{argument}'; {hint}")
    return kind(**spec.args)
