"""The seam between the training loop and the strategies."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.manifest import FileEntry, TableEntry
from flambeau.config import JobSettings
from flambeau.config.tables import TableSpec
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.data.batch import Batch
from flambeau.embeddings.backend import TableGradient
from flambeau.strategies.group import Group

#: As in torch's own clipping, added to the norm before dividing.
NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class Clipping:
    """Limits on gradients, applied to the gradient of all workers together, tables included."""

    norm: float | None = None
    value: float | None = None

    def apply(self, optimizer: Optimizer, tables: Sequence[TableGradient] = ()) -> None:
        """Clip the gradients of an optimizer's parameters and of tables in place."""
        if self.value is None and self.norm is None:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self.value is not None:
            nn.utils.clip_grad_value_(parameters, self.value)
            for table in tables:
                np.clip(table.grads, -self.value, self.value, out=table.grads)
        if self.norm is not None:
            self._clip_norm([p.grad for p in parameters if p.grad is not None], tables)

    def _clip_norm(self, grads: list[Tensor], tables: Sequence[TableGradient]) -> None:
        assert self.norm is not None
        squares = sum(float(np.vdot(table.grads, table.grads)) for table in tables)
        total = torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())
        whole = (total.square() + squares).sqrt()
        factor = float(torch.clamp(self.norm / (whole + NORM_EPSILON), max=1.0))
        for grad in grads:
            grad.mul_(factor)
        for table in tables:
            np.multiply(table.grads, table.grads.dtype.type(factor), out=table.grads)


@dataclass(frozen=True)
class StepShare:
    """Rows of a step on this worker and on all workers, and their position in the data.

    For planned workers `task` is 0 and `batch` is the step; asynchronous workers set the task of
    their epoch and the batch in it.
    """

    rows: int
    all_rows: int
    batch: int
    epoch: int = 0
    task: int = 0


class TableUpdates(Protocol):
    """Tables in this process that are updated together with the dense weights."""

    def attach(self, model: nn.Module) -> None:
        """Attach a table to every table module of the model."""

    def gradients(self) -> list[TableGradient]:
        """Return the gradients of the last backward passes."""

    def apply(self, gradients: Sequence[TableGradient], factor: float) -> None:
        """Update the tables; learning rates are multiplied by `factor`."""

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each table (see `TableCounters`), by its name."""

    def checkpoints(self, context: "SavingContext") -> "TableCheckpoints":
        """Return the object that saves and loads the tables."""

    @property
    def seconds(self) -> float:
        """Total time of lookups and updates."""


class TableSeconds(NamedTuple):
    """Seconds since the start: `sparse` for tables and servers, `wait` for their answers."""

    sparse: float = 0.0
    wait: float = 0.0


Saved = tuple[dict[str, FileEntry], dict[str, TableEntry]]
#: Waits until tables are on the disk; returns their files, and how these make up the tables.
Finish = Callable[[], Saved]


class TableCheckpoints(ABC):
    """Saving and loading of the tables in a checkpoint. Only the first worker's saves."""

    #: `shared`: other workers can change the saved tables. `empty`: there is nothing to save.
    shared = False
    empty = False

    @abstractmethod
    def begin(self, directory: Path) -> Finish:
        """Save the current rows into a directory; another thread may call the returned `Finish`."""

    def load(self, checkpoint: Path) -> None:  # noqa: B027 - servers load their own
        """Load the tables of a checkpoint."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections."""


@final
class NoTables(TableCheckpoints):
    """Saving for a model without tables and without servers."""

    empty = True

    def begin(self, directory: Path) -> Finish:
        """Save nothing."""
        return lambda: ({}, {})


@dataclass(frozen=True)
class SavingContext:
    """Settings and connections with which a worker saves the tables of a job."""

    settings: JobSettings
    run: RunDirectory
    coordinator: CoordinatorClient
    specs: Sequence[TableSpec]


class Strategy(ABC):
    """One worker's side of the agreement between replicas.

    A training step calls `begin` and `forward`, scales the loss by the factor from `begin`, calls
    `backward` once per part of the batch, and then `update`.
    """

    #: Set when all workers are to stop after the current step.
    stop = False
    #: Rows of this generation whose gradients were dropped.
    dropped_rows = 0
    #: Whether a gradient that is not finite is skipped, instead of ending the job.
    skips_non_finite = False
    #: Whether the most recent step was skipped because of such a gradient.
    skipped = False
    #: Whether `look_ahead` benefits from the next batch.
    looks_ahead = False

    @abstractmethod
    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Take over the model and make all replicas equal; return its `forward`.

        `own_step`: the user's code calls backward and update itself, in any order.
        """

    @abstractmethod
    def begin(self, rows: StepShare) -> float:
        """Announce the next step; return the factor to multiply its mean loss with."""

    @abstractmethod
    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of a scaled loss; `last` is True for the step's final part."""

    @abstractmethod
    def update(self, name: str = "") -> None:
        """Agree on the gradients of optimizer `name`, apply them and clear them."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the replicas equal, including buffers, before saving or evaluating."""

    def sit_out(self, rows: StepShare) -> bool:
        """Take part in a step without rows of this worker.

        Returns False if the worker must instead run forward and backward with weight 0, between
        calls of `weightless`.
        """
        return False

    def weightless(self, on: bool) -> None:  # noqa: B027 - optional
        """Announce whether the rows of the next steps are to be ignored (this worker has none)."""

    def skip(self) -> None:
        """Discard the gradient of this step, which is not finite."""
        raise AssertionError("only strategies that skip are asked to")

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:  # noqa: B027 - optional
        """Fetch the table rows of `batch`, and start to fetch those of `upcoming`."""

    def catch_up(self) -> None:  # noqa: B027 - optional
        """Load the newest weights, since others have continued while this worker was idle."""

    @property
    def steps_done(self) -> int | None:
        """Steps that all workers together have made, if others may continue without this one."""
        return None

    def communication_seconds(self) -> float:
        """Return the seconds of a recent step spent waiting for others; 0 if unknown."""
        return 0.0

    def table_seconds(self) -> TableSeconds:
        """Return the time spent on tables and servers so far."""
        return TableSeconds()

    def summary(self) -> dict[str, Any]:
        """Return counters for the report."""
        return {}

    def table_checkpoints(self, context: SavingContext) -> TableCheckpoints:
        """Return the object that saves and loads the model's tables and the state of servers."""
        return NoTables()

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close connections."""


def average_buffers(model: nn.Module, group: Group) -> None:
    """Replace floating-point buffers (running statistics) by their mean over all workers."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if not buffers or group.size == 1:
        return
    doubles = any(b.dtype is torch.float64 for b in buffers)
    dtype = torch.float64 if doubles else torch.float32
    with torch.no_grad():
        flat = group.sum(torch.cat([b.detach().flatten().to(dtype) for b in buffers]))
        flat = flat / group.size  # of the workers that took part, which may be fewer than before
        parts = torch.split(flat, [b.numel() for b in buffers])
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part.view_as(buffer))


def rate_factor(optimizer: Optimizer, first_rate: float) -> float:
    """Return the schedule's current factor on the learning rate, which tables use as well."""
    return float(optimizer.param_groups[0]["lr"]) / first_rate if first_rate else 1.0
