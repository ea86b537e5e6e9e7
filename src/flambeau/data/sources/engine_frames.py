"""The part of a data frame that an engine has sent to this worker's agent.

The workers of an agent share its rows; they cannot read those of other agents, and do not need to.
"""

from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa

from flambeau.config.plural import number_of
from flambeau.coordination.placement import agents_of_workers
from flambeau.data.source import Shard, StreamedSource
from flambeau.data.sources.record_batches import rows_between
from flambeau.errors import DataError


@final
class EngineFrameSource(StreamedSource):
    """Source whose shards are Arrow batches in mapped files, one file for each agent.

    `rows` has the numbers of rows of all shards, by agent. `descriptor` is the file of this
    worker's agent (`home`), or None if it has no rows.
    """

    def __init__(
        self,
        descriptor: int | None,
        rows: Sequence[Sequence[int]],
        home: int,
        columns: Sequence[str],
    ) -> None:
        self._descriptor, self._home, self._columns = descriptor, home, tuple(columns)
        self.homes = tuple(tuple(each) for each in rows)
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    @property
    def schema(self) -> pa.Schema:
        if self._descriptor is None:
            return pa.schema([(name, pa.null()) for name in self._columns])
        return self._open().schema

    @property
    def shard_homes(self) -> list[int]:
        """The agent of each shard."""
        return [home for home, counts in enumerate(self.homes) for _ in counts]

    def agents_of(self, workers: int) -> list[int]:
        """Return the agent of each worker."""
        agents = agents_of_workers(len(self.homes), workers)
        idle = set(range(len(self.homes))) - set(agents)
        unread = sum(sum(self.homes[agent]) for agent in idle)
        if unread:
            raise DataError(
                f"{number_of(unread, 'row')} of the data frame came to agents without a worker: "
                f"there are {len(self.homes)} agents and {number_of(workers, 'worker')}. Use at "
                "least one worker for each agent"
            )
        return agents

    def shards(self) -> Sequence[Shard]:
        """Return the shards of all agents, one agent after the other."""
        shards = [
            Shard("", part, count, home)
            for home, counts in enumerate(self.homes)
            for part, count in enumerate(counts)
        ]
        if not shards:
            raise DataError("the data frame has no rows")
        return shards

    def read(
        self, shard: Shard, columns: Sequence[str], start: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of a shard of this agent; none of another agent's shards."""
        if shard.home == self._home:
            batch = self._open().get_batch(shard.part).select(list(columns))
            yield from rows_between(iter([batch]), start, stop)

    def _open(self) -> pa.ipc.RecordBatchFileReader:
        if self._reader is None:
            assert self._descriptor is not None
            # Opened by its descriptor, since the file has no name.
            self._reader = pa.ipc.open_file(pa.memory_map(f"/dev/fd/{self._descriptor}"))
        return self._reader
