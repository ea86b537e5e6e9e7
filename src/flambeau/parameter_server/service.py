"""The loop of a server, which handles requests and coordinator decisions one at a time."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import zmq

from flambeau.config.tables import TableSpec
from flambeau.coordination.activity import stores
from flambeau.coordination.round_messages import Commit, NormReply, NormRequest, Staged
from flambeau.errors import FlambeauError, ProtocolError, SnapshotLostError
from flambeau.messaging import Envelope, Server
from flambeau.parameter_server import requests
from flambeau.parameter_server.gradient import Gradient
from flambeau.parameter_server.protocol import (
    AwaitSnapshot,
    Declare,
    Declared,
    Done,
    Initialise,
    Load,
    Messages,
    Outcome,
    Pull,
    Push,
    Pushed,
    Refused,
    SnapshotBegun,
    SnapshotDone,
    TakeSnapshot,
    Values,
    Waiting,
)
from flambeau.parameter_server.restoring import Restoring
from flambeau.parameter_server.shard import ServerShard
from flambeau.parameter_server.snapshot import ShardSnapshot
from flambeau.parameter_server.statistics import ServerStatistics
from flambeau.tables.index.ids import Ids

BREATH_SECONDS = 1.0
IDLE_SECONDS = 0.1
#: Rows that a snapshot writes between two requests.
SNAPSHOT_ROWS = 65_536

Envelopes = Envelope[Messages]


class Coordinator:
    """Connection to the coordinator in synchronous training; asynchronous training needs none."""

    def __init__(self, send: Callable[[Any], object], generation: int) -> None:
        self.send, self.generation = send, generation


@dataclass
class _Parked:
    """Push whose answer waits for the end of its round."""

    envelope: Envelopes
    push: Push


@final
class Service:
    """Server of one shard. `coordinator` is None if gradients are applied when they arrive."""

    def __init__(
        self,
        shard: ServerShard,
        server: Server[Messages],
        generation: int,
        restoring: Restoring | None,
        coordinator: Coordinator | None,
    ) -> None:
        self.shard, self._server, self._generation = shard, server, generation
        self._restoring, self._coordinator = restoring, coordinator
        self.statistics = ServerStatistics()
        self._parked: dict[int, _Parked] = {}
        self._early: list[Envelopes] = []
        self._stop = False
        self._dropped = 0
        self._snapshot: ShardSnapshot | None = None
        self._awaiting: list[Envelopes] = []
        self._backlog: deque[Envelopes] = deque()
        self._declaring: list[tuple[Envelopes, Declare]] = []
        self._breath = 0.0

    # Main loop

    def turn(self, poller: zmq.Poller) -> None:
        """Handle one request, if there is one, then do a piece of the pending work."""
        busy = self._backlog or (self._snapshot is not None and not self._snapshot.written)
        ready = dict(poller.poll(0 if busy else int(IDLE_SECONDS * 1000)))
        if self._backlog:
            self._handle(self._backlog.popleft())
        elif self._server.socket in ready:
            envelope = self._server.receive(0)
            if envelope is not None:
                self._handle(envelope)
        self._advance_snapshot()
        if time.monotonic() >= self._breath:
            self._breathe()

    def decided(self, decision: NormRequest | Commit) -> None:
        """Act on the coordinator's decision about the open round."""
        if decision.round != self.shard.staging.round:
            return  # received twice
        if isinstance(decision, NormRequest):
            squares = self.shard.staging.squares(decision.members)
            assert self._coordinator is not None
            index = self.shard.settings.index
            self._coordinator.send(NormReply(index, self._generation, decision.round, squares))
        else:
            self._close_round(decision)

    def _handle(self, envelope: Envelopes) -> None:
        message = envelope.message
        try:
            handler = _HANDLERS.get(type(message))
            if handler is None:
                raise ProtocolError(f"a server does not take {type(message).__name__}")
            handler(self, envelope, message)
        except FlambeauError as error:
            self._refuse(envelope, error)

    def _refuse(self, envelope: Envelopes, error: FlambeauError | OSError) -> None:
        number = getattr(envelope.message, "number", 0)
        refused = Refused(number, type(error).__name__, str(error))
        if isinstance(error, OSError) and error.errno:
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
            refused = Refused(number, "OSError", text, error.errno)
        self._reply(envelope, refused)

    # Requests

    def _declare(self, envelope: Envelopes, message: Declare) -> None:
        self._require_generation(message.generation)
        specs = [TableSpec.parse(values) for values in message.tables]
        layout = requests.layout(message.layout)
        first = not self.shard.declared
        self.shard.declare(specs, layout)
        if first:
            self._fill(envelope)
        if self.shard.begun or message.worker == 0:
            self._answer_declare(envelope, message)
        else:
            self._declaring.append((envelope, message))

    @stores
    def _fill(self, envelope: Envelopes) -> None:
        """Restore or import existing values; on failure, undo the declaration."""
        self._backlog.append(envelope)  # so that the worker gets keep-alives meanwhile
        try:
            if self._restoring is not None:
                self._restoring.restore(self.shard, self._look_around)
            if not self.shard.begun:
                self.shard.import_first_rows()
        except FlambeauError:
            self.shard = ServerShard(self.shard.settings)
            raise
        finally:
            self._backlog.remove(envelope)

    def _answer_declare(self, envelope: Envelopes, message: Declare) -> None:
        begun, current = self.shard.begun, self.shard.staging.round
        self._reply(envelope, Declared(message.number, begun, current))

    def _load(self, envelope: Envelopes, message: Load) -> None:
        table, ids, values = requests.first_rows(self.shard, message, envelope.buffers)
        if not self.shard.begun and table.spec.name not in self.shard.filled:
            table.load(ids, values)
        self._reply(envelope, Done(message.number))

    def _initialise(self, envelope: Envelopes, message: Initialise) -> None:
        dense = self.shard.dense
        if dense is not None and not self.shard.begun:
            dense.initialise(requests.first_values(dense, envelope.buffers))
        self.shard.begun = True
        self._reply(envelope, Done(message.number))
        waiting, self._declaring = self._declaring, []
        for other, declare in waiting:
            self._answer_declare(other, declare)

    def _pull(self, envelope: Envelopes, message: Pull) -> None:
        started = time.perf_counter()
        wanted = requests.wanted(self.shard, message.parts, envelope.buffers)
        answer = Values(message.number, self.shard.version)
        self._send_values(envelope, answer, wanted, training=message.training, dense=message.dense)
        self.statistics.pulled(wanted, time.perf_counter() - started)

    def _push(self, envelope: Envelopes, message: Push) -> None:
        started = time.perf_counter()
        self._require_generation(message.key.generation)
        gradient = requests.gradient(self.shard, message, envelope.buffers)
        # Malformed messages are refused before anything changes.
        wanted = requests.wanted_back(self.shard, message, envelope.buffers)
        if self._coordinator is None:
            outcome, apply_rest = self._apply_now(message, gradient, wanted)
            self._answer_push(envelope, message, outcome)
            apply_rest()
        else:
            self._stage(envelope, message, gradient)
        self.statistics.pushed(message, time.perf_counter() - started)

    def _apply_now(
        self, message: Push, gradient: Gradient, wanted: Sequence[tuple[int, Ids]]
    ) -> tuple[Outcome, Callable[[], None]]:
        """Apply what the answer needs; return the outcome, and a function that applies the rest."""
        key = message.key
        if not self.shard.watermarks.accept(key.epoch, key.task, key.batch):
            return "duplicate", _nothing
        if not message.finite:
            return "skipped", _nothing
        self.statistics.stale(self.shard.version - message.version)
        return "applied", self.shard.apply_first(gradient, wanted)

    def _stage(self, envelope: Envelopes, message: Push, gradient: Gradient) -> None:
        number, worker = message.key.batch, message.worker
        if number > self.shard.staging.round:
            self._early.append(envelope)  # other shards have already closed the round before
            return
        standing = self.shard.staging.stage(worker, number, message.weight, gradient)
        if standing.outcome is None:
            self._parked[worker] = _Parked(envelope, message)
        else:
            self._answer_push(envelope, message, standing.outcome)
        if standing.outcome not in (None, "late"):
            return
        assert self._coordinator is not None
        # Sent again when a push is repeated: the coordinator may not have received it.
        self._coordinator.send(
            Staged(
                self.shard.settings.index,
                self._generation,
                number,
                worker,
                message.rows,
                message.planned,
                message.finite,
            )
        )

    def _close_round(self, decision: Commit) -> None:
        started = time.perf_counter()
        gradient = self.shard.staging.close(decision.members, decision.scale, decision.apply)
        if gradient is not None:
            self.shard.apply(gradient)
        self._stop = self._stop or decision.stop
        self._dropped = decision.dropped
        parked, self._parked = self._parked, {}
        for worker, item in parked.items():
            outcome = self.shard.staging.outcome(worker, item.push.key.batch)
            self._answer_push(item.envelope, item.push, outcome)
        early, self._early = self._early, []
        self._backlog.extend(early)
        self.statistics.committed(time.perf_counter() - started)

    def _answer_push(self, envelope: Envelopes, message: Push, outcome: Outcome) -> None:
        shard = self.shard
        wanted = requests.wanted_back(shard, message, envelope.buffers)
        current = shard.staging.round
        answer = Pushed(message.number, shard.version, outcome, current, self._stop, self._dropped)
        self._send_values(envelope, answer, wanted, training=True, dense=True)

    def _send_values(
        self,
        envelope: Envelopes,
        answer: Values | Pushed,
        wanted: Sequence[tuple[int, Ids]],
        *,
        training: bool,
        dense: bool,
    ) -> None:
        """Answer with rows, and with the dense weights if requested."""
        shard, sizes = self.shard, self.shard.sizes(wanted)
        weights = shard.dense.values if dense and shard.dense is not None else None
        if weights is not None:
            sizes.append(weights.nbytes)
        room = self._server.room(envelope.peer, sizes)
        out = shard.pull(wanted, training=training, room=room)
        if weights is not None:
            # With room, they are copied there; otherwise a copy keeps them from changing in flight.
            out.append(weights if room is not None and room.spans[-1] else weights.copy())
        self._server.send(envelope.peer, answer, out, room)

    # Snapshots

    def _own(self, directory: str) -> Path:
        """Return a directory of the run on this machine, creating it if needed."""
        path = (self.shard.settings.directory or Path()) / directory
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _take_snapshot(self, envelope: Envelopes, message: TakeSnapshot) -> None:
        if not self.shard.begun:
            raise SnapshotLostError("a server has nothing to save yet: it has just been replaced")
        if self._snapshot is None or self._snapshot.name != message.name:
            self._abandon_snapshot()
            try:
                self._snapshot = ShardSnapshot(
                    self.shard,
                    message.name,
                    self._own(message.directory),
                    track=message.track,
                    incremental=message.incremental,
                )
            except OSError as error:
                self._refuse(envelope, error)
                return
        self._reply(envelope, SnapshotBegun(message.number))

    def _abandon_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.abandon()
        waiting, self._awaiting = self._awaiting, []
        for envelope in waiting:
            number = getattr(envelope.message, "number", 0)
            self._reply(envelope, Refused(number, "CheckpointError", "another snapshot was begun"))

    def _await_snapshot(self, envelope: Envelopes, message: AwaitSnapshot) -> None:
        if self._snapshot is None or self._snapshot.name != message.name:
            raise SnapshotLostError("the server that began the snapshot was lost")
        self._awaiting.append(envelope)

    def _advance_snapshot(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        if not snapshot.written:
            snapshot.advance(SNAPSHOT_ROWS)
        elif self._awaiting and snapshot.done():
            waiting, self._awaiting = self._awaiting, []
            for envelope in waiting:
                self._answer_snapshot(envelope, snapshot)

    def _answer_snapshot(self, envelope: Envelopes, snapshot: ShardSnapshot) -> None:
        try:
            files, tables = snapshot.result()
        except (FlambeauError, OSError) as error:
            self._refuse(envelope, error)
        else:
            number = getattr(envelope.message, "number", 0)
            self._reply(envelope, SnapshotDone(number, files, tables))

    # Keep-alives

    def _breathe(self) -> None:
        self._breath = time.monotonic() + BREATH_SECONDS
        parked = [item.envelope for item in self._parked.values()]
        declaring = [envelope for envelope, _ in self._declaring]
        for envelope in (*parked, *self._early, *declaring, *self._awaiting, *self._backlog):
            self._reply(envelope, Waiting(getattr(envelope.message, "number", 0)))

    def _look_around(self) -> None:
        """Queue requests that arrived during long work, and send keep-alives."""
        while True:
            envelope = self._server.receive(0)
            if envelope is None:
                break
            self._backlog.append(envelope)
        if time.monotonic() >= self._breath:
            self._breathe()

    def _require_generation(self, generation: int) -> None:
        if generation != self._generation:
            raise ProtocolError(f"of generation {generation}, this is {self._generation}")

    def _reply(self, envelope: Envelopes, message: Messages, out: Sequence[Any] = ()) -> None:
        self._server.send(envelope.peer, message, out)


def _nothing() -> None:
    """Do nothing: the rest of a gradient that was not applied."""


_HANDLERS: dict[type, Callable[..., None]] = {
    Declare: Service._declare,
    Load: Service._load,
    Initialise: Service._initialise,
    Pull: Service._pull,
    Push: Service._push,
    TakeSnapshot: Service._take_snapshot,
    AwaitSnapshot: Service._await_snapshot,
}
