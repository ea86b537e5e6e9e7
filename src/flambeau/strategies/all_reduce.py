"""All-reduce: every worker has the whole model, and gradients are averaged at each step."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from flambeau.config import AllReduce
from flambeau.coordination.activity import waits_for_others
from flambeau.errors import ModelError
from flambeau.strategies import sync_batch_norm
from flambeau.strategies.base import (
    Clipping,
    NoTables,
    SavingContext,
    StepShare,
    Strategy,
    TableCheckpoints,
    TableSeconds,
    TableUpdates,
    average_buffers,
    rate_factor,
)
from flambeau.strategies.group import Group
from flambeau.strategies.shared_group import SharedGroup


@final
class AllReduceStrategy(Strategy):
    """Strategy that averages gradients with torch's DDP during the backward pass.

    With the user's own step, gradients are averaged at once at `update`: DDP expects one backward
    per forward, which a GAN, for example, does not have. With `local_sgd=k` weights are averaged
    every k updates instead.
    """

    def __init__(
        self,
        settings: AllReduce,
        group: Group,
        clipping: Clipping,
        tables: TableUpdates | None = None,
        first_rate: float = 0.0,
    ) -> None:
        self._settings = settings
        self._group = group
        self._clipping = clipping
        self.tables, self._first_rate = tables, first_rate
        self._ddp: DistributedDataParallel | None = None
        self._updates = 0
        #: Seconds and updates at the last call of `communication_seconds`.
        self._told = (0.0, 0)

    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Copy rank 0's weights and buffers to all workers; wrap the model in DDP if possible."""
        self._model, self._optimizers = model, optimizers
        self._reduce_at_update = own_step and self._settings.local_sgd is None
        if self.tables is not None:
            self.tables.attach(model)
        if self._group.size == 1:
            return model
        self._share_first_weights()
        if own_step or self._settings.local_sgd is not None:
            return model
        self._ddp = self._wrap(model)
        return self._ddp

    def begin(self, rows: StepShare) -> float:
        """Return the factor that makes the mean over workers the mean over all rows."""
        return rows.rows * self._group.size / rows.all_rows

    @waits_for_others
    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add gradients; DDP exchanges them during the last part's backward."""
        wait = self._ddp.no_sync() if self._ddp is not None and not last else nullcontext()
        with wait:
            loss.backward()  # type: ignore[no-untyped-call]

    def update(self, name: str = "") -> None:
        """Average gradients that DDP has not averaged, clip, step, and clear."""
        optimizer = self._optimizer(name)
        if self._reduce_at_update and self._group.size > 1:
            self._average_gradients(optimizer)
        gradients = self.tables.gradients() if self.tables is not None else []
        self._clipping.apply(optimizer, gradients)
        optimizer.step()
        if self.tables is not None:
            self.tables.apply(gradients, rate_factor(optimizer, self._first_rate))
        optimizer.zero_grad(set_to_none=True)
        self._updates += 1
        local = self._settings.local_sgd
        if local is not None and self._updates % local == 0:
            self._average_weights()

    def synchronize(self) -> None:
        """Average running statistics and, with local SGD, the weights."""
        if self._settings.local_sgd is not None:
            self._average_weights()
        average_buffers(self._model, self._group)

    def weightless(self, on: bool) -> None:
        """Exclude rows without weight from synchronised statistics."""
        for module in self._model.modules():
            if isinstance(module, sync_batch_norm.SyncBatchNorm):
                module.muted = on

    def table_seconds(self) -> TableSeconds:
        """Return the time spent on tables of this process."""
        return TableSeconds() if self.tables is None else TableSeconds(self.tables.seconds)

    def table_checkpoints(self, context: SavingContext) -> TableCheckpoints:
        """Return the object that saves and loads the tables of this process."""
        return NoTables() if self.tables is None else self.tables.checkpoints(context)

    def summary(self) -> dict[str, Any]:
        """Return the counters of the tables of this process, if there are any."""
        return {} if self.tables is None else {"tables": self.tables.counters()}

    def communication_seconds(self) -> float:
        """Return recent communication time per step that did not overlap with computation."""
        if isinstance(self._group, SharedGroup):
            seconds, updates = self._group.seconds, self._updates
            before, self._told = self._told, (seconds, updates)
            return (seconds - before[0]) / max(1, updates - before[1])
        if self._ddp is None:
            return 0.0
        stats = self._ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        whole = float(stats.get("avg_backward_comm_time", 0))
        hidden = float(stats.get("avg_backward_compute_comm_overlap_time", 0))
        return max(0.0, whole - hidden) / 1e9

    def _optimizer(self, name: str) -> Optimizer:
        if name not in self._optimizers:
            raise ModelError(f"there is no optimizer '{name}'; there is {list(self._optimizers)}")
        return self._optimizers[name]

    def _share_first_weights(self) -> None:
        with torch.no_grad():
            for tensor in (*self._model.parameters(), *self._model.buffers()):
                self._group.broadcast(tensor.data)

    def _wrap(self, model: nn.Module) -> DistributedDataParallel:
        settings = self._settings
        device = next(model.parameters()).device
        ddp = DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            init_sync=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=settings.bucket_mb,
            find_unused_parameters=settings.find_unused,
            **_OWN_BUFFERS,
        )
        hook = _compression_hook(settings.compression)
        if hook is None and isinstance(self._group, SharedGroup):
            hook = (self._group, _add_up)
        if hook is not None:
            ddp.register_comm_hook(*hook)
        return ddp

    def _average_gradients(self, optimizer: Optimizer) -> None:
        """Average all gradients in one all-reduce; a parameter without any gradient keeps none."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        present = torch.tensor([float(p.grad is not None) for p in parameters])
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        # Workers need not have gradients for the same parameters, but must exchange equal sizes.
        flat = torch.cat([g.flatten() for g in grads] + [present.to(grads[0])])
        self._group.sum(flat)
        mean = flat[: -len(parameters)] / self._group.size
        means = torch.split(mean, [g.numel() for g in grads])
        for parameter, mean, anywhere in zip(
            parameters, means, flat[-len(parameters) :].tolist(), strict=True
        ):
            parameter.grad = mean.view_as(parameter).to(parameter.dtype) if anywhere else None

    def _average_weights(self) -> None:
        if self._group.size == 1:
            return
        with torch.no_grad():
            parameters = list(self._model.parameters())
            flat = torch.cat([p.flatten() for p in parameters])
            self._group.sum(flat).div_(self._group.size)
            parts = torch.split(flat, [p.numel() for p in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


# Each worker keeps its own running statistics until `synchronize`; older torch uses another name.
_OWN_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False
}


def _add_up(group: Group, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(group.sum(bucket.buffer()).div_(group.size))
    return done


def _compression_hook(name: str) -> tuple[Any, Any] | None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if name == "none":
        return None
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            dist.group.WORLD, matrix_approximation_rank=2, start_powerSGD_iter=10
        )
        return state, powerSGD_hook.powerSGD_hook
    # Without NCCL, DDP rejects torch's own bf16 hook by its name.
    bf16 = partial(default_hooks.bf16_compress_hook)
    bf16.__name__ = bf16.__qualname__ = "bf16_anywhere"  # type: ignore[attr-defined]
    hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": bf16}
    return dist.group.WORLD, hooks[name]
