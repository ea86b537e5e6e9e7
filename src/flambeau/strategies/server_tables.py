"""Lookups and pushes that strategies with servers share."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from torch import nn

from flambeau.data.batch import Batch
from flambeau.embeddings.attach import attach, prefetch_columns
from flambeau.embeddings.backend import TableGradient
from flambeau.embeddings.external import initial_rows
from flambeau.embeddings.lookups import Lookups
from flambeau.parameter_server.client import PendingPush, PushResult, ServerClient, Update
from flambeau.strategies.base import TableSeconds
from flambeau.strategies.prefetching import Prefetcher

#: Most pushes in flight if no rows have to be returned.
WINDOW = 4

Array = np.ndarray[Any, Any]


@final
class ServerTables:
    """Lookups and pushes of a model's tables on the servers.

    With `prefetch`, rows of columns that modules name are fetched during the batch before; this is
    for workers that do not wait for each other.
    """

    def __init__(self, client: ServerClient, *, prefetch: bool) -> None:
        self.client = client
        self.lookups = Lookups(client)
        self._prefetch = prefetch
        self._prefetcher: Prefetcher | None = None
        self._pending: deque[PendingPush] = deque()
        self.outcomes: Counter[str] = Counter()

    def attach(self, model: nn.Module) -> None:
        """Connect the model's modules to the tables on the servers."""
        attach(model, self.lookups)
        columns = prefetch_columns(model) if self._prefetch else []
        if columns:
            gpu = any(parameter.device.type != "cpu" for parameter in model.parameters())
            self._prefetcher = Prefetcher(self.client, self.lookups, columns, gpu=gpu)

    def load_initial(self, model: nn.Module) -> None:
        """Send the first rows of tables to the servers."""
        for spec, ids, values in initial_rows(model):
            self.client.load(spec, ids, values)

    def prepare(self, upcoming: Batch | None) -> None:
        """Prepare the next batches while answers are in flight."""
        if self._prefetcher is not None:
            with self.lookups.watch:
                self._prefetcher.prepare(upcoming)

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        """Provide the rows of `batch`, and start to fetch those of the next one."""
        if self._prefetcher is not None:
            with self.lookups.watch:
                self._prefetcher.look_ahead(batch, upcoming)

    def push(
        self,
        update: Update,
        gradients: Sequence[TableGradient],
        dense: Array | None = None,
        absent: Sequence[int] = (),
    ) -> None:
        """Send a gradient; `settle` waits for the answer."""
        with self.lookups.watch:
            want = self._prefetcher.wanted(gradients) if self._prefetcher is not None else []
            self._pending.append(self.client.begin_push(update, gradients, dense, absent, want))

    def settle(self, dense_out: Array | None = None, *, keep: int = 0) -> PushResult | None:
        """Wait for the answers to all pushes but the last `keep`; return the last of them."""
        result = None
        with self.lookups.watch:
            while len(self._pending) > keep:
                result = self.client.finish_push(self._pending.popleft(), dense_out)
                self.outcomes[result.outcome] += 1
                if self._prefetcher is not None:
                    self._prefetcher.arrived(result.rows)
        return result

    @property
    def seconds(self) -> TableSeconds:
        """Total time of lookups and pushes; take differences to measure an interval."""
        waited = self.client.waited
        return TableSeconds(self.lookups.watch.seconds - waited, waited)

    @property
    def prefetches(self) -> bool:
        """Return whether the model names columns to fetch early."""
        return self._prefetcher is not None

    @property
    def window(self) -> int:
        """Number of pushes that may stay in flight."""
        return 0 if self._prefetcher is not None else WINDOW

    def summary(self) -> dict[str, Any]:
        """Return counters for the report."""
        lookups, client = self.lookups, self.client
        return {
            **client.counts,
            "ids_seen": lookups.ids_seen,
            "ids_distinct": lookups.ids_distinct,
            "prefetch_hits": lookups.hits if self._prefetcher is not None else 0,
            "prefetch_misses": lookups.misses if self._prefetcher is not None else 0,
            "pull_seconds_p50": client.latencies.percentile(0.5),
            "pull_seconds_p99": client.latencies.percentile(0.99),
            "requests_resent": sum(channel.resent for channel in client.channels),
        }
