"""Parameter server: weights and tables are on servers; workers push gradients and pull values."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.config.strategies import ParameterServer
from flambeau.data.batch import Batch
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.backend import TableGradient
from flambeau.errors import JobFailedError, ModelError
from flambeau.parameter_server.client import ServerClient, Update
from flambeau.parameter_server.elementwise import require_element_wise
from flambeau.parameter_server.flat_parameters import FlatParameters
from flambeau.parameter_server.protocol import Key
from flambeau.strategies.base import (
    NORM_EPSILON,
    Clipping,
    SavingContext,
    StepShare,
    Strategy,
    TableCheckpoints,
    TableSeconds,
    average_buffers,
    rate_factor,
)
from flambeau.strategies.group import Group
from flambeau.strategies.server_tables import ServerTables
from flambeau.strategies.table_checkpoints import ServerTableCheckpoints

Array = np.ndarray[Any, Any]


@final
class ParameterServerStrategy(Strategy):
    """Strategy that pushes every gradient to the servers and continues with the values they return.

    In synchronous training an update ends when the servers have applied the gradients of all
    workers; the servers weigh, sum and clip them. Otherwise it ends when the gradient has been
    sent; the worker clips its own gradient, and waits for the answer before the next step.
    """

    def __init__(
        self,
        settings: ParameterServer,
        client: ServerClient,
        group: Group,
        clipping: Clipping,
        first_rate: float,
    ) -> None:
        self._settings, self._client, self._group = settings, client, group
        self._clipping, self._first_rate = clipping, first_rate
        self._lockstep = settings.lockstep
        self.skips_non_finite = settings.non_finite == "skip"
        self._tables = ServerTables(client, prefetch=not self._lockstep)
        self._flat: FlatParameters | None = None
        self._rows = StepShare(0, 0, 0)
        self._updated = True
        self._waited = self._waits = 0.0

    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Send the model's values to the servers, or load the servers' if they have some."""
        if list(optimizers) != [""]:
            raise ModelError(
                "several optimizers need all-reduce: servers apply all gradients of a step at once"
            )
        self._model, self._optimizer = model, optimizers[""]
        if any(p.numel() for group in self._optimizer.param_groups for p in group["params"]):
            self._flat = FlatParameters(model, self._optimizer)
            require_element_wise(type(self._optimizer), self._flat.layout.groups)
        layout = self._flat.layout if self._flat is not None else None
        begun = self._client.open(tables_of(model), layout)
        if not begun:
            self._tables.load_initial(model)
            self._client.initialise(self._flat.values if self._flat is not None else None)
        self._tables.attach(model)
        self.looks_ahead = self._tables.prefetches
        self._take_dense()
        return model

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        """Wait for the last push; then fetch the rows of this batch, and start the next one's."""
        self._tables.prepare(upcoming)
        self._settle()
        self._tables.look_ahead(batch, upcoming)

    def begin(self, rows: StepShare) -> float:
        """Return 1: servers weigh by rows, so the loss stays unchanged."""
        self._settle()
        if not self._updated:
            raise ModelError("the step before did not call update(): servers need one per step")
        self._rows, self._updated = rows, False
        return 1.0

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def update(self, name: str = "") -> None:
        """Push the step's gradient."""
        if self._updated:
            raise ModelError("update() was called twice in a step: servers take one update a step")
        gradients = self._tables.lookups.gradients()
        dense: Array | None = None
        absent: list[int] = []
        if self._flat is not None:
            dense, absent = self._flat.gradient()
            self._flat.forget_gradients()
        finite = _finite(dense, gradients)
        if not finite and not self._lockstep and not self.skips_non_finite:
            raise not_finite(self._rows, gradients)
        if finite and not self._lockstep:
            self._clip(dense, gradients)
        self._push(self._rows, gradients, dense, absent, finite=finite)

    def skip(self) -> None:
        """Push an empty gradient, so that the others need not wait for this step's."""
        self._tables.lookups.discard()
        if self._flat is not None:
            self._flat.forget_gradients()
        self._push(self._rows, [], None, [], finite=False)

    def sit_out(self, rows: StepShare) -> bool:
        """Take part in the round with an empty gradient."""
        self._push(rows, [], None, [], finite=True)
        return True

    def synchronize(self) -> None:
        """Wait for all answers, load the newest weights, and average running statistics."""
        self._settle(keep=0)
        if not self._lockstep:
            self._group.gather(b"")  # all workers' gradients have been applied
        self._take_dense()
        average_buffers(self._model, self._group)

    def catch_up(self) -> None:
        """Load the newest weights."""
        self._settle(keep=0)
        self._take_dense()

    @property
    def steps_done(self) -> int | None:
        """The open round in synchronous training, otherwise None."""
        return self._client.round if self._lockstep else None

    def communication_seconds(self) -> float:
        """Return the mean time that a step waited for the servers, since the last call."""
        mean = self._waited / max(1.0, self._waits)
        self._waited = self._waits = 0.0
        return mean

    def table_seconds(self) -> TableSeconds:
        """Return the time of lookups and pushes."""
        return self._tables.seconds

    def table_checkpoints(self, context: SavingContext) -> TableCheckpoints:
        """Return the object that lets the servers save and load."""
        return ServerTableCheckpoints(context, self._tables.client.access)

    def summary(self) -> dict[str, Any]:
        """Return counters of requests, lookups and gradients."""
        return self._tables.summary()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _push(
        self,
        rows: StepShare,
        gradients: Sequence[TableGradient],
        dense: Array | None,
        absent: Sequence[int],
        *,
        finite: bool,
    ) -> None:
        generation = self._client.generation
        update = Update(
            key=Key(generation, rows.epoch, rows.task, rows.batch),
            rows=rows.rows,
            planned=rows.all_rows,
            weight=float(rows.rows),
            finite=finite,
            rates=[float(group["lr"]) for group in self._optimizer.param_groups],
            factor=rate_factor(self._optimizer, self._first_rate),
        )
        self._tables.push(update, gradients, dense, absent)
        self._updated, self.skipped = True, not finite
        if self._lockstep:
            self._settle()

    def _settle(self, keep: int | None = None) -> None:
        """Load the values that result from this worker's gradients, except the last `keep`."""
        started = time.perf_counter()
        if keep is None:
            keep = self._tables.window if self._flat is None and not self._lockstep else 0
        values = self._flat.values if self._flat is not None else None
        result = self._tables.settle(values, keep=keep)
        if result is not None:
            self._loaded(values)
            self.stop = self.stop or result.stop
            self.dropped_rows = result.dropped
            self._waited += time.perf_counter() - started
            self._waits += 1

    def _take_dense(self) -> None:
        with self._tables.lookups.watch:
            if self._flat is not None:
                values = self._flat.values
                self._client.pull_dense(values)
                self._loaded(values)
            else:
                # Wait for all servers, so that a replacement has restored its state.
                self._client.pull([], training=False)

    def _loaded(self, values: Array | None) -> None:
        """Copy `values` back to a GPU; elsewhere they are the weights' own memory."""
        if self._flat is not None and values is not None and self._flat.device.type != "cpu":
            self._flat.load(0, values)

    def _clip(self, dense: Array | None, gradients: Sequence[TableGradient]) -> None:
        parts = [gradient.grads for gradient in gradients]
        parts += [dense] if dense is not None else []
        if self._clipping.value is not None:
            for part in parts:
                np.clip(part, -self._clipping.value, self._clipping.value, out=part)
        if self._clipping.norm is not None:
            norm = sum(float(np.vdot(part, part)) for part in parts) ** 0.5
            scale = self._clipping.norm / (norm + NORM_EPSILON)
            for part in parts if scale < 1.0 else []:
                np.multiply(part, part.dtype.type(scale), out=part)


#: Remedies besides a lower learning rate.
REMEDIES = "set clip_norm, or skip such batches with non_finite='skip'"


def not_finite(
    rows: StepShare, gradients: Sequence[TableGradient], remedies: str = REMEDIES
) -> JobFailedError:
    """Return the error for a gradient that would make the weights NaN or infinite."""
    bad = [f"'{each.spec.name}'" for each in gradients if not _all_finite(each.grads)]
    what = f"table {', '.join(bad)}" if bad else "the dense weights"
    return JobFailedError(
        f"the gradient of {what} in batch {rows.batch} of epoch {rows.epoch} is not finite: "
        f"lower the learning rate, {remedies}"
    )


def finite_tables(gradients: Sequence[TableGradient]) -> bool:
    """Return whether all gradients of tables are finite."""
    return all(_all_finite(gradient.grads) for gradient in gradients)


def _finite(dense: Array | None, gradients: Sequence[TableGradient]) -> bool:
    return finite_tables(gradients) and (dense is None or _all_finite(dense))


def _all_finite(numbers: Array) -> bool:
    # The sum shows whether anything is wrong; only then is every number checked.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(numbers.sum())) or bool(np.isfinite(numbers).all())
