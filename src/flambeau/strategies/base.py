"""The seam between the training loop and the way replicas agree."""

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

#: Keeps torch's own clipping and ours equal: it adds this to the norm before it divides.
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
    """The rows of a step: this worker's, everybody's, and where they are in the data.

    Workers in lockstep have the task 0, and `batch` is the step; those that run free name the
    task of their epoch and the batch in it.
    """

    rows: int
    all_rows: int
    batch: int
    epoch: int = 0
    task: int = 0


class TableUpdates(Protocol):
    """Tables in this process, changed when the dense weights are."""

    def attach(self, model: nn.Module) -> None:
        """Give every table module of the model its table."""

    def gradients(self) -> list[TableGradient]:
        """What the last backward passes gave."""

    def apply(self, gradients: Sequence[TableGradient], factor: float) -> None:
        """Update the tables; learning rates are multiplied by `factor`."""

    def counters(self) -> dict[str, dict[str, int]]:
        """How large each table is, and what became of ids, by its name."""

    def checkpoints(self, context: "SavingContext") -> "TableCheckpoints":
        """Return what saves and loads the tables."""

    @property
    def seconds(self) -> float:
        """How long look-ups and updates took."""


class TableSeconds(NamedTuple):
    """Seconds since the start: `sparse` for tables and servers, but for the `wait` for answers."""

    sparse: float = 0.0
    wait: float = 0.0


Saved = tuple[dict[str, FileEntry], dict[str, TableEntry]]
#: Waits until tables are on the disk; returns their files, and how these make up the tables.
Finish = Callable[[], Saved]


class TableCheckpoints(ABC):
    """The tables' part of a checkpoint. Only the first worker's saves."""

    #: Whether other workers can change what is saved, and whether there is nothing to save.
    shared = False
    empty = False

    @abstractmethod
    def begin(self, directory: Path) -> Finish:
        """Save the current rows into a directory; another thread may do what `Finish` does."""

    def load(self, checkpoint: Path) -> None:  # noqa: B027 - servers do it themselves
        """Start with the tables of a checkpoint."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """End connections."""


@final
class NoTables(TableCheckpoints):
    """A model without tables, and without servers."""

    empty = True

    def begin(self, directory: Path) -> Finish:
        """Save nothing."""
        return lambda: ({}, {})


@dataclass(frozen=True)
class SavingContext:
    """Where and how a worker saves the tables of a job."""

    settings: JobSettings
    run: RunDirectory
    coordinator: CoordinatorClient
    specs: Sequence[TableSpec]


class Strategy(ABC):
    """One worker's side of the agreement between replicas.

    A training step calls `begin`, `forward`, scales the loss by what `begin` gave, calls `backward`
    once per part of the batch, and then `update`.
    """

    #: Set when all workers are to end after the step that was last updated.
    stop = False
    #: Rows of this generation whose gradients were left out.
    dropped_rows = 0
    #: Whether a gradient that is not finite is left out, instead of ending the job.
    skips_non_finite = False
    #: Whether that happened in the step that was last updated.
    skipped = False
    #: Whether it makes use of knowing the next batch before this one is trained on.
    looks_ahead = False

    @abstractmethod
    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Take charge of the model: all replicas are equal afterwards. Returns its `forward`.

        `own_step`: the user's code calls backward and update itself, in any order.
        """

    @abstractmethod
    def begin(self, rows: StepShare) -> float:
        """Say what the next step is about; what to multiply its mean loss with."""

    @abstractmethod
    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add the gradients of a scaled loss; `last` is True for the step's final part."""

    @abstractmethod
    def update(self, name: str = "") -> None:
        """Agree on the gradients of optimizer `name`, apply them and clear them."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the replicas equal, buffers too, as before saving or evaluating."""

    def sit_out(self, rows: StepShare) -> bool:
        """Take part in a step without rows of one's own.

        False if that takes a forward and backward pass with weight 0, between `weightless` calls.
        """
        return False

    def weightless(self, on: bool) -> None:  # noqa: B027 - most strategies need not know
        """Announce that the rows of the next steps count for nothing (this worker has none)."""

    def skip(self) -> None:
        """Give up the gradient of this step, which is not finite."""
        raise AssertionError("only strategies that skip are asked to")

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:  # noqa: B027 - most need not
        """Fetch what `batch` needs, and begin to fetch for the one after it."""

    def catch_up(self) -> None:  # noqa: B027 - most need not
        """Take the newest weights: others have gone on while this worker was idle."""

    @property
    def steps_done(self) -> int | None:
        """Steps that all workers together have made, where others may have gone on alone."""
        return None

    def communication_seconds(self) -> float:
        """Seconds of a recent step spent waiting for others; 0 where that is not known."""
        return 0.0

    def table_seconds(self) -> TableSeconds:
        """What tables and servers have taken so far."""
        return TableSeconds()

    def summary(self) -> dict[str, Any]:
        """What it counted, for the report."""
        return {}

    def table_checkpoints(self, context: SavingContext) -> TableCheckpoints:
        """Return what saves and loads the tables of the model, and the state of servers."""
        return NoTables()

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """End connections."""


def average_buffers(model: nn.Module, total: Callable[[Tensor], Tensor], workers: int) -> None:
    """Replace floating-point buffers (running statistics) by their mean over all workers."""
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    if not buffers or workers == 1:
        return
    doubles = any(b.dtype is torch.float64 for b in buffers)
    dtype = torch.float64 if doubles else torch.float32
    with torch.no_grad():
        flat = total(torch.cat([b.detach().flatten().to(dtype) for b in buffers])) / workers
        parts = torch.split(flat, [b.numel() for b in buffers])
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part.view_as(buffer))


def rate_factor(optimizer: Optimizer, first_rate: float) -> float:
    """How much a schedule has changed the learning rate: tables change by the same factor."""
    return float(optimizer.param_groups[0]["lr"]) / first_rate if first_rate else 1.0
