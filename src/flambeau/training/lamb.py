"""LAMB (You et al. 2020): Adam with steps scaled to the norm of each weight."""

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.optim import Optimizer


@final
class LAMB(Optimizer):
    """Adam's direction u, scaled for each parameter w by its trust ratio |w| / |u|.

    m and v are the running means of gradients and of their squares, as in Adam;
    u = m / (sqrt(v) + eps) + weight_decay * w, and w -= lr * |w| / |u| * u. The ratio is 1 where
    one of the norms is 0. `bias_correction` divides m and v by 1 - beta^t first.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        bias_correction: bool = True,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": (float(betas[0]), float(betas[1])),
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Apply one step to all parameters with a gradient; return the result of `closure`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(weights, group)
        return loss

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        first, second = group["betas"]
        grads = [_dense(weight.grad) for weight in weights]
        states = [self._state(weight) for weight in weights]
        steps: list[Tensor] = [state["step"] for state in states]
        means: list[Tensor] = [state["exp_avg"] for state in states]
        squares: list[Tensor] = [state["exp_avg_sq"] for state in states]
        torch._foreach_add_(steps, 1.0)
        torch._foreach_lerp_(means, grads, 1.0 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, grads, grads, 1.0 - second)
        roots = torch._foreach_sqrt(squares)
        if group["bias_correction"]:
            # Parameters that got their first gradient later have made fewer steps.
            counts = [float(step) for step in steps]
            torch._foreach_div_(roots, [math.sqrt(1.0 - second**count) for count in counts])
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_mul_(roots, [1.0 - first**count for count in counts])
        else:
            torch._foreach_add_(roots, group["eps"])
        updates: list[Tensor] = [*torch._foreach_div(means, roots)]
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, _trust_ratios(weights, updates))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    def _state(self, weight: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        return state


def _trust_ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return |w| / |u| of each parameter, as tensors without dimensions."""
    pairs = zip(torch._foreach_norm(weights), torch._foreach_norm(updates), strict=True)
    return [
        torch.where((weight > 0) & (update > 0), weight / update, torch.ones_like(weight))
        for weight, update in pairs
    ]


def _dense(grad: Tensor | None) -> Tensor:
    assert grad is not None
    if grad.is_sparse:
        raise RuntimeError(
            "LAMB needs the norm of a whole weight, and this gradient is sparse: build the "
            "embedding with sparse=False, or move it to a table"
        )
    return grad


def _check(lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    for name, value in {"lr": lr, "eps": eps, "weight_decay": weight_decay}.items():
        if not value >= 0.0:
            raise ValueError(f"{name}={value}: must be at least 0")
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ValueError(f"betas={tuple(betas)}: give two numbers from 0 to below 1")
