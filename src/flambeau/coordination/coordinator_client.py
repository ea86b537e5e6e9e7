"""A role's connection to the coordinator: a thread that sends, receives and reports heartbeats."""

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import zmq

from flambeau.coordination.activity import doing_of
from flambeau.coordination.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    Begin,
    Heartbeat,
    Messages,
    Report,
    RoleJoined,
    Servers,
    Stop,
)
from flambeau.coordination.roles import RoleSpec
from flambeau.errors import RequestTimeoutError
from flambeau.messaging import Client

HEARTBEAT_SECONDS = 1.0

#: Function that is called with a message and its buffers in the connection's thread, so it must
#: return quickly.
Handler = Callable[[Any, Sequence[Any]], None]


@final
class CoordinatorClient:
    """Connection of one role to the coordinator. Thread-safe."""

    def __init__(self, address: str, secret: bytes, joined: RoleJoined) -> None:
        self._address, self._secret, self._joined = address, secret, joined
        self._outbox: queue.SimpleQueue[tuple[Messages, Sequence[Any]]] = queue.SimpleQueue()
        self._handlers: dict[type, Handler] = {}
        self._unheard: list[tuple[Messages, Sequence[Any]]] = []
        self._hearing = threading.Lock()
        self.servers: list[str] = []
        self._wake_read, self._wake_write = os.pipe()
        self._begin: Begin | None = None
        self._begun = threading.Event()
        self._stop = threading.Event()
        self._closing = False
        self._marks = 0
        self._thread = threading.Thread(target=self._run, name="flambeau-link", daemon=True)
        self._thread.start()

    @property
    def spec(self) -> RoleSpec:
        """The role on whose behalf this client sends."""
        return self._joined.spec

    @property
    def stop_requested(self) -> bool:
        """Whether the coordinator has requested to save a checkpoint and end."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a stop request; return whether there is one."""
        return self._stop.wait(timeout)

    def wait_until_all_joined(self, timeout: float = 600.0) -> Begin:
        """Block until all workers have joined; raise `RequestTimeoutError` if some do not."""
        if not self._begun.wait(timeout):
            raise RequestTimeoutError(
                f"the other workers did not join within {timeout:.0f} s; the coordinator is at "
                f"{self._address}"
            )
        assert self._begin is not None
        return self._begin

    @property
    def secret(self) -> bytes:
        """The job's secret, with which its processes authenticate."""
        return self._secret

    @property
    def coordinator(self) -> str:
        """Address of the coordinator."""
        return self._address

    def on(self, kind: type, handler: Handler) -> None:
        """Call `handler` with each message of a kind, including those received before this call."""
        with self._hearing:
            self._handlers[kind] = handler
            waiting = [item for item in self._unheard if type(item[0]) is kind]
            self._unheard = [item for item in self._unheard if type(item[0]) is not kind]
            for message, buffers in waiting:
                handler(message, buffers)

    def send(self, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """Queue a message for the coordinator."""
        self._outbox.put((message, buffers))
        os.write(self._wake_write, b"\0")

    def report(self, kind: str, **fields: Any) -> None:
        """Report an event of this kind to the observers of the job."""
        self.send(Report(self.spec, kind, fields))

    def mark(self) -> None:
        """Count a step, or anything else that shows that the role makes progress."""
        self._marks += 1

    def close(self) -> None:
        """Send all queued messages and close the connection."""
        self._closing = True
        os.write(self._wake_write, b"\0")
        self._thread.join(timeout=10)

    def _run(self) -> None:
        client = Client(CODEC, self._secret, self._address, max_bytes=MAX_FRAME_BYTES)
        client.send(self._joined)
        poller = zmq.Poller()
        poller.register(client.socket, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        beat, main = 0.0, threading.main_thread().ident or 0
        while not (self._closing and self._outbox.empty()):
            if time.monotonic() >= beat:
                client.send(Heartbeat(self.spec, self._marks, doing_of(main)))
                beat = time.monotonic() + HEARTBEAT_SECONDS
            ready = dict(poller.poll(max(0, int((beat - time.monotonic()) * 1000) + 1)))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            while not self._outbox.empty():
                client.send(*self._outbox.get())
            if client.socket in ready:
                self._hear(client)
        client.close()

    def _hear(self, client: Client[Messages]) -> None:
        received = client.receive(0)
        if received is None:
            return
        message, buffers = received
        if isinstance(message, Begin):
            self._begin = message
            self.servers = message.servers
            self._begun.set()
        elif isinstance(message, Servers):
            self.servers = message.servers
        elif isinstance(message, Stop):
            self._stop.set()
        else:
            self._pass_on(message, buffers)

    def _pass_on(self, message: Messages, buffers: Sequence[Any]) -> None:
        with self._hearing:
            handler = self._handlers.get(type(message))
            if handler is None:
                self._unheard.append((message, buffers))
            else:
                handler(message, buffers)
