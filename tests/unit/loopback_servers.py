"""A parameter server in threads of the test's own process, reached over loopback.

The test is the coordinator: it hears what shards say and tells them what is decided.
"""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import torch
import zmq

from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.coordination.round_messages import Commit, NormRequest
from flambeau.messaging import Server, new_secret
from flambeau.parameter_server.channel import Access, Channel
from flambeau.parameter_server.client import ServerClient
from flambeau.parameter_server.dense_layout import DenseLayout, DenseParameter
from flambeau.parameter_server.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    AwaitSnapshot,
    SnapshotDone,
    TakeSnapshot,
)
from flambeau.parameter_server.restoring import Restoring
from flambeau.parameter_server.service import Coordinator, Service
from flambeau.parameter_server.shard import ServerShard, ShardSettings

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 30.0
SEED = 5
#: Numbers of requests that no client comes to by counting.
TAKE, AWAIT = 1_000_001, 1_000_002

Found = TypeVar("Found")


def sgd(lr: float = 1.0) -> OptimizerSpec:
    return OptimizerSpec(name="sgd", args={"lr": lr})


def dense_layout(numel: int, **options: Any) -> DenseLayout:
    """One parameter of float64 in one group."""
    groups = ({"lr": 1.0, **options},)
    return DenseLayout((DenseParameter("w", numel, 0),), "float64", groups)


class Serving:
    """One shard, served by a thread."""

    def __init__(
        self,
        shard: ServerShard,
        *,
        generation: int = 0,
        restoring: Restoring | None = None,
        lockstep: bool = False,
        encrypt: bool = False,
        port: int = 0,
    ) -> None:
        limits = {"max_bytes": MAX_FRAME_BYTES, "encrypt": encrypt, "share": True}
        self._server = Server(CODEC, SECRET, HOST, port, **limits)
        self.address = self._server.address
        #: What it has said to the coordinator.
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        coordinator = Coordinator(self.said.put, generation) if lockstep else None
        self._service = Service(shard, self._server, generation, restoring, coordinator)
        self._questions: queue.SimpleQueue[tuple[Callable[[Service], Any], Future[Any]]]
        self._questions = queue.SimpleQueue()
        self._bell, self._rope = os.pipe()
        self._ended = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def ask(self, question: Callable[[Service], Found]) -> Found:
        """Have its thread call a function, between two requests."""
        return self._ring(question).result(SOON)

    def hold(self) -> threading.Event:
        """Serve nothing until the event is set."""
        event = threading.Event()
        self._ring(lambda service: event.wait(SOON))
        return event

    def stop(self) -> None:
        """End the thread and free the port."""
        if self._thread.is_alive():
            self.ask(lambda service: setattr(self, "_ended", True))
        self._thread.join()
        os.close(self._bell)
        os.close(self._rope)

    def _ring(self, question: Callable[[Service], Found]) -> Future[Found]:
        future: Future[Found] = Future()
        self._questions.put((question, future))
        os.write(self._rope, b"!")
        return future

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._server.socket, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        try:
            while not self._ended:
                self._service.turn(poller)
                self._answer_questions()
        finally:
            self._server.close()

    def _answer_questions(self) -> None:
        while not self._questions.empty():
            question, future = self._questions.get()
            os.read(self._bell, 1)
            try:
                future.set_result(question(self._service))
            except Exception as error:  # noqa: BLE001 - raised where it was asked
                future.set_exception(error)


class Servers:
    """Shards, and clients that are closed with them."""

    def __init__(
        self,
        count: int,
        *,
        generation: int = 0,
        lockstep: bool = False,
        encrypt: bool = False,
        restoring: Restoring | None = None,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = torch.optim.SGD,
        clip_value: float | None = None,
        share: bool = True,
    ) -> None:
        self.generation, self.encrypt, self.share = generation, encrypt, share
        self._clients: list[ServerClient | Channel] = []
        self.shards = [
            Serving(
                ServerShard(ShardSettings(index, count, SEED, sgd(), optimizer, clip_value)),
                generation=generation,
                restoring=restoring,
                lockstep=lockstep,
                encrypt=encrypt,
            )
            for index in range(count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients:
            client.close()
        for shard in self.shards:
            shard.stop()

    @property
    def access(self) -> Access:
        address_of = lambda shard: self.shards[shard].address  # noqa: E731
        return Access(SECRET, address_of, SOON, self.encrypt, self.share)

    def channel(self, shard: int = 0) -> Channel:
        channel = Channel(shard, self.access)
        self._clients.append(channel)
        return channel

    def client(self, worker: int = 0, compression: str = "none") -> ServerClient:
        """A worker that has said nothing yet."""
        generation = self.generation
        client = ServerClient(len(self.shards), self.access, worker, generation, compression)
        self._clients.append(client)
        return client

    def worker(
        self,
        rank: int = 0,
        specs: Sequence[TableSpec] = (),
        weights: Sequence[float] | None = None,
        compression: str = "none",
        **options: Any,
    ) -> ServerClient:
        """A worker with tables and dense weights; the first gives the weights their values."""
        client = self.client(rank, compression)
        layout = None if weights is None else dense_layout(len(weights), **options)
        if not client.open(specs, layout):
            client.initialise(None if weights is None else np.array(weights))
        return client

    def ask(self, question: Callable[[Service], Found]) -> list[Found]:
        """What each shard answers."""
        return [shard.ask(question) for shard in self.shards]

    def hear(self, each: int = 1) -> list[list[Any]]:
        """The next so many reports of each shard to the coordinator; waits for them."""
        return [[shard.said.get(timeout=SOON) for _ in range(each)] for shard in self.shards]

    def decide(self, decision: NormRequest | Commit) -> None:
        """Tell all shards."""
        self.ask(lambda service: service.decided(decision))

    def commit(self, number: int, members: Sequence[int], **changes: Any) -> None:
        """End a round."""
        values = {"scale": 1.0, "apply": True, "stop": False, "dropped": 0, **changes}
        self.decide(Commit(number, list(members), **values))

    def begin_snapshot(
        self, directory: Path, channels: Sequence[Channel], *, incremental: bool = False
    ) -> None:
        """Have all shards fix this moment, and remember what changes afterwards."""
        directory.mkdir()
        take = TakeSnapshot(TAKE, directory.name, str(directory), True, incremental)
        for channel in channels:
            channel.send(take)

    def finish_snapshot(
        self, directory: Path, channels: Sequence[Channel], specs: Sequence[TableSpec]
    ) -> list[SnapshotDone]:
        """Wait until the snapshot is written, and make a checkpoint of it."""
        for channel in channels:
            channel.answer(TAKE)
            channel.send(AwaitSnapshot(AWAIT, directory.name))
        done = [channel.answer(AWAIT)[0] for channel in channels]
        write_manifest(directory, done, specs)
        return done

    def snapshot(self, directory: Path, specs: Sequence[TableSpec], **options: Any) -> Any:
        """Both at once."""
        channels = [self.channel(shard) for shard in range(len(self.shards))]
        self.begin_snapshot(directory, channels, **options)
        return self.finish_snapshot(directory, channels, specs)


def write_manifest(
    directory: Path, done: Sequence[SnapshotDone], specs: Sequence[TableSpec]
) -> None:
    """Commit what shards wrote; what is not full builds on the checkpoint `base` beside it."""
    tables: dict[str, TableEntry] = {}
    for number, spec in enumerate(specs):
        parts = [one.tables[number] for one in done]
        layers = [[part.file for part in parts]]
        if not all(part.full for part in parts):
            layers.append([f"../base/{part.file}" for part in parts])
        shown = spec.model_copy(update={"optimizer": spec.optimizer or sgd()})
        tables[spec.name] = TableEntry(spec=shown.model_dump(mode="json"), layers=layers)
    files = {
        name: FileEntry(size=size, crc32=crc32)
        for one in done
        for name, (size, crc32) in one.files.items()
    }
    Manifest(
        step=1, epoch=0, workers=1, time=0.0, metrics={}, state=None, files=files, tables=tables
    ).write(directory)
