"""Hybrid: dense weights by all-reduce, tables on servers."""

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.config.strategies import Hybrid
from flambeau.data.batch import Batch
from flambeau.embeddings.attach import tables_of
from flambeau.errors import ConfigError, ModelError
from flambeau.parameter_server.client import ServerClient, Update
from flambeau.parameter_server.protocol import Key
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import (
    Clipping,
    SavingContext,
    StepShare,
    Strategy,
    TableCheckpoints,
    TableSeconds,
    rate_factor,
)
from flambeau.strategies.group import Group
from flambeau.strategies.parameter_server import finite_tables, not_finite
from flambeau.strategies.server_tables import ServerTables
from flambeau.strategies.table_checkpoints import ServerTableCheckpoints


@final
class HybridStrategy(Strategy):
    """Strategy in which all workers make the same steps and average dense gradients at each.

    Gradients of tables go to the servers, which apply them in rounds (`synchronous`), or as soon as
    they arrive (`asynchronous`; then rows are prefetched, and workers do not wait for pushes).
    """

    def __init__(
        self,
        settings: Hybrid,
        client: ServerClient,
        group: Group,
        clipping: Clipping,
        first_rate: float,
    ) -> None:
        if clipping.norm is not None:
            raise ConfigError(
                "clip_norm needs the norm of all gradients, which no process has with Hybrid: use "
                "clip= of the table optimizer and clip_value, or another strategy"
            )
        self._dense = AllReduceStrategy(settings.dense, group, clipping)
        self._rounds = settings.consistency == "synchronous"
        self._tables = ServerTables(client, prefetch=not self._rounds)
        self._client, self._group = client, group
        self._clip_value, self._first_rate = clipping.value, first_rate
        self.skips_non_finite = False
        self._rows, self._share = StepShare(0, 0, 0), 1.0

    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        """Attach a model: dense weights come from the first worker, tables from the servers."""
        if list(optimizers) != [""]:
            raise ModelError("several optimizers need all-reduce alone: tables have one update")
        specs = tables_of(model)
        if not specs:
            raise ModelError("the model has no tables: use AllReduce, which is the same then")
        self._optimizer = optimizers[""]
        if not self._client.open(specs, None):
            self._tables.load_initial(model)
            self._client.initialise(None)
        forward = self._dense.attach(model, optimizers, own_step=own_step)
        self._tables.attach(model)
        self.looks_ahead = self._tables.prefetches
        return forward

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        """Fetch the table rows of this batch, and start to fetch those of the next one."""
        self._tables.prepare(upcoming)
        self._settle()
        self._tables.look_ahead(batch, upcoming)

    def begin(self, rows: StepShare) -> float:
        """Return the factor for this worker's share of the rows."""
        self._rows, self._share = rows, self._dense.begin(rows)
        return self._share

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add gradients."""
        self._dense.backward(loss, last=last)

    def update(self, name: str = "") -> None:
        """Average and apply dense gradients; push those of tables."""
        gradients = self._tables.lookups.gradients()
        if not finite_tables(gradients):
            raise not_finite(self._rows, gradients, "or set clip_value")
        for gradient in gradients:
            if self._share not in (0.0, 1.0):
                np.divide(gradient.grads, gradient.grads.dtype.type(self._share), gradient.grads)
            if self._clip_value is not None and not self._rounds:
                np.clip(gradient.grads, -self._clip_value, self._clip_value, gradient.grads)
        counts = self._share > 0.0
        update = Update(
            key=Key(self._client.generation, 0, self._client.worker, self._rows.batch),
            rows=self._rows.rows if counts else 0,
            planned=self._rows.all_rows,
            weight=float(self._rows.rows) if counts else 0.0,
            factor=rate_factor(self._optimizer, self._first_rate),
        )
        self._tables.push(update, gradients if counts else [])
        self._dense.update(name)
        if self._rounds:
            self._settle()

    def synchronize(self) -> None:
        """Wait for the answers of all workers' pushes, and make the dense replicas equal."""
        self._tables.settle()
        if not self._rounds:
            self._group.gather(b"")  # all workers' gradients have been applied
        self._dense.synchronize()

    def weightless(self, on: bool) -> None:
        """Exclude rows without weight, as in `AllReduceStrategy`."""
        self._dense.weightless(on)

    def communication_seconds(self) -> float:
        """Return the communication time of the all-reduce."""
        return self._dense.communication_seconds()

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

    def _settle(self) -> None:
        result = self._tables.settle(keep=0 if self._rounds else self._tables.window)
        if result is not None:
            self.stop = self.stop or result.stop
            self.dropped_rows = result.dropped
