"""The parameter server as a worker sees it: one client for all shards."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import msgspec
import numpy as np

from flambeau.config.tables import TableSpec
from flambeau.coordination.activity import waits_for_others
from flambeau.embeddings.backend import LookupBackend, TableGradient
from flambeau.errors import ModelError
from flambeau.parameter_server import buffers, partition
from flambeau.parameter_server.channel import Access, Channel
from flambeau.parameter_server.compression import encode
from flambeau.parameter_server.dense_layout import DenseLayout
from flambeau.parameter_server.protocol import (
    Declare,
    Declared,
    Initialise,
    Key,
    Load,
    Outcome,
    Pull,
    Push,
    Pushed,
    TablePart,
    Values,
)
from flambeau.parameter_server.statistics import Latencies
from flambeau.tables.index.ids import Ids
from flambeau.tables.precision import COMPUTED

LOAD_ROWS = 65_536

Array = np.ndarray[Any, Any]
Wanted = Sequence[tuple[TableSpec, Ids]]


@dataclass(frozen=True)
class Update:
    """Description of a gradient that is sent with it; see `protocol.Push`."""

    key: Key
    rows: int
    planned: int
    weight: float
    finite: bool = True
    rates: Sequence[float] = ()
    factor: float = 1.0


@dataclass(frozen=True)
class PushResult:
    """Outcome of a push on the first shard, and the round that is now open on all shards."""

    outcome: Outcome
    round: int
    stop: bool
    dropped: int
    rows: list[Array]


@dataclass
class PendingPull:
    """Pull in flight: for each table, the shards of its ids and their order."""

    number: int
    specs: list[TableSpec]
    places: list[partition.Partition]
    started: float


@dataclass
class PendingPush:
    """Push in flight, and the rows it will return."""

    number: int
    specs: list[TableSpec]
    places: list[partition.Partition]


@final
class ServerClient(LookupBackend):
    """Client of the parameter server for one worker of a generation. Used by one thread.

    `waited` is the total time in seconds spent waiting for answers.
    """

    def __init__(
        self, shards: int, access: Access, worker: int, generation: int, compression: Any = "none"
    ) -> None:
        self.access = access
        self.channels = [Channel(shard, access) for shard in range(shards)]
        self.worker, self.generation = worker, generation
        self._compression = compression
        self._specs: dict[str, int] = {}
        self._layout: DenseLayout | None = None
        self._ranges: list[tuple[int, int]] = []
        self._number = 0
        self._versions = [0] * shards
        self._noted = 0
        self.round = 0
        self.latencies = Latencies()
        self.waited = 0.0
        self.counts: Counter[str] = Counter()

    @property
    def near(self) -> bool:
        """Return whether all shards are on this machine, so that they can use shared memory."""
        return all(channel.near for channel in self.channels)

    # Setup

    def declare(self, specs: Sequence[TableSpec]) -> None:
        """Check that these tables were declared to the shards when the connection was opened."""
        for spec in specs:
            if spec.name not in self._specs:
                raise ModelError(f"table '{spec.name}' was not in the model when training began")

    def open(self, specs: Sequence[TableSpec], layout: DenseLayout | None) -> bool:
        """Declare tables and dense weights to all shards; return whether these have values already.

        For all workers but the first, it waits until they have.
        """
        ordered = sorted(specs, key=lambda spec: spec.name)
        self._specs = {spec.name: number for number, spec in enumerate(ordered)}
        if layout is not None:
            self._layout, self._ranges = layout, layout.ranges(len(self.channels))
        tables = [spec.model_dump(mode="json") for spec in ordered]
        plain = None if layout is None else msgspec.to_builtins(layout)
        number = self._next()
        message = Declare(number, self.worker, self.generation, tables, plain)
        answers: list[Declared] = [a for a, _ in self._ask_all(number, message)]
        self.round = max(answer.round for answer in answers)
        return all(answer.begun for answer in answers)

    def load(self, spec: TableSpec, ids: Ids, values: Array) -> None:
        """Load the first rows of a table, where the shards do not have values already."""
        for start in range(0, ids.size, LOAD_ROWS):
            part = slice(start, start + LOAD_ROWS)
            chosen = np.ascontiguousarray(values[part], COMPUTED[spec.dtype])
            place = partition.split(ids[part], len(self.channels))
            number = self._next()
            for shard, channel in enumerate(self.channels):
                own = place.ids(shard)
                rows = place.rows(shard, chosen)
                channel.send(Load(number, self._specs[spec.name], own.size), [own, rows])
            self._answers(number)

    def initialise(self, values: Array | None) -> None:
        """Set the first values of the dense weights, or none, and let training start."""
        number = self._next()
        for channel, (start, stop) in zip(self.channels, self._parts(), strict=True):
            own = [] if values is None else [values[start:stop].copy()]
            channel.send(Initialise(number), own)
        self._answers(number)

    # Rows

    def pull(self, wanted: Wanted, *, training: bool) -> list[Array]:
        """Return the rows of distinct ids, in their order."""
        return self.finish_pull(self.begin_pull(wanted, training=training))

    def begin_pull(self, wanted: Wanted, *, training: bool, dense: bool = False) -> PendingPull:
        """Request each shard's part of the rows, without waiting."""
        started = time.perf_counter()
        places = [partition.split(ids, len(self.channels)) for _, ids in wanted]
        number = self._next()
        for shard, channel in enumerate(self.channels):
            own = [place.ids(shard) for place in places]
            parts = [
                TablePart(self._specs[spec.name], ids.size)
                for (spec, _), ids in zip(wanted, own, strict=True)
            ]
            channel.send(Pull(number, parts, training, dense), own)
        return PendingPull(number, [spec for spec, _ in wanted], places, started)

    def finish_pull(self, pending: PendingPull) -> list[Array]:
        """Wait for the rows of a pull and return them."""
        answers = self._answers(pending.number)
        self._note_versions(pending.number, [answer for answer, _ in answers])
        rows = _merge(pending.specs, pending.places, [frames for _, frames in answers])
        self.latencies.add(time.perf_counter() - pending.started)
        self.counts["pulls"] += 1
        self.counts["rows_pulled"] += sum(array.shape[0] for array in rows)
        return rows

    def pull_dense(self, out: Array) -> None:
        """Copy the current dense weights to `out`."""
        number = self.begin_pull([], training=False, dense=True).number
        answers = self._answers(number)
        self._note_versions(number, [answer for answer, _ in answers])
        for (start, stop), (_, frames) in zip(self._ranges, answers, strict=True):
            out[start:stop] = buffers.numbers(frames[-1], stop - start, out.dtype)

    # Gradients

    def begin_push(
        self,
        update: Update,
        gradients: Sequence[TableGradient],
        dense: Array | None = None,
        absent: Sequence[int] = (),
        want: Wanted = (),
    ) -> PendingPush:
        """Send each shard its part of a gradient; `want` are rows to return after the update."""
        places = [partition.split(gradient.ids, len(self.channels)) for gradient in gradients]
        wanted = [partition.split(ids, len(self.channels)) for _, ids in want]
        number = self._next()
        for shard, channel in enumerate(self.channels):
            frames: list[Any] = []
            for place, gradient in zip(places, gradients, strict=True):
                frames.append(place.ids(shard))
                frames.append(encode(place.rows(shard, gradient.grads), self._compression))
            if dense is not None:
                start, stop = self._ranges[shard]
                frames.append(encode(dense[start:stop], self._compression))
            own = [place.ids(shard) for place in wanted]
            channel.send(
                Push(
                    number=number,
                    worker=self.worker,
                    key=update.key,
                    rows=update.rows,
                    planned=update.planned,
                    weight=update.weight,
                    version=self._versions[shard],
                    finite=update.finite,
                    parts=[
                        TablePart(self._specs[gradient.spec.name], place.ids(shard).size)
                        for place, gradient in zip(places, gradients, strict=True)
                    ],
                    dense=dense is not None,
                    absent=list(absent),
                    rates=list(update.rates),
                    factor=update.factor,
                    compression=self._compression,
                    want=[
                        TablePart(self._specs[spec.name], ids.size)
                        for (spec, _), ids in zip(want, own, strict=True)
                    ],
                ),
                [*frames, *own],
            )
        self.counts["pushes"] += 1
        self.counts["rows_pushed"] += sum(gradient.ids.size for gradient in gradients)
        return PendingPush(number, [spec for spec, _ in want], wanted)

    def finish_push(self, pending: PendingPush, dense_out: Array | None = None) -> PushResult:
        """Wait until all shards have handled a gradient; write the new weights to `dense_out`."""
        answers = self._answers(pending.number)
        replies: list[Pushed] = [answer for answer, _ in answers]
        self._note_versions(pending.number, replies)
        if dense_out is not None:
            for (start, stop), (_, frames) in zip(self._ranges, answers, strict=True):
                dense_out[start:stop] = buffers.numbers(frames[-1], stop - start, dense_out.dtype)
        rows = _merge(pending.specs, pending.places, [frames for _, frames in answers])
        self.round = max(reply.round for reply in replies)
        self.counts[f"outcome_{replies[0].outcome}"] += 1
        stop = any(reply.stop for reply in replies)
        dropped = max(reply.dropped for reply in replies)
        return PushResult(replies[0].outcome, self.round, stop, dropped, rows)

    def close(self) -> None:
        """Close all connections."""
        for channel in self.channels:
            channel.close()

    def _parts(self) -> list[tuple[int, int]]:
        return self._ranges or [(0, 0)] * len(self.channels)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _ask_all(self, number: int, message: Any) -> list[tuple[Any, Sequence[Any]]]:
        for channel in self.channels:
            channel.send(message)
        return self._answers(number)

    @waits_for_others
    def _answers(self, number: int) -> list[tuple[Any, Sequence[Any]]]:
        started = time.perf_counter()
        for channel in self.channels:
            while not channel.wait(number):
                # A shard may answer only when all have our message: resend those that were lost.
                for each in self.channels:
                    each.attend()
        self.waited += time.perf_counter() - started
        return [channel.answer(number) for channel in self.channels]

    def _note_versions(self, number: int, answers: Sequence[Values | Pushed]) -> None:
        if number < self._noted:
            return  # of a request older than one whose answer was already handled
        self._noted = number
        versions = [answer.version for answer in answers]
        # A replacement server lacks unsaved updates; if two were replaced, they lack the same ones.
        lost = (before - now for before, now in zip(self._versions, versions, strict=True))
        self.counts["updates_lost"] += max(0, *lost)
        self._versions = versions


def _merge(
    specs: Sequence[TableSpec],
    places: Sequence[partition.Partition],
    frames: Sequence[Sequence[Any]],
) -> list[Array]:
    """Return the rows of each table in the order requested, from the shards' buffers."""
    merged = []
    for index, (spec, place) in enumerate(zip(specs, places, strict=True)):
        dtype = np.dtype(COMPUTED[spec.dtype])
        parts = [
            buffers.rows(own[index], place.ids(shard).size, spec.dim, dtype)
            for shard, own in enumerate(frames)
        ]
        merged.append(place.merge(parts))
    return merged
