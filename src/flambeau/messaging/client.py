"""Client side of a connection to one server."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

import zmq
from zmq.utils.monitor import parse_monitor_message

from flambeau.errors import RequestTimeoutError
from flambeau.messaging.credentials import credentials
from flambeau.messaging.frames import MAX_HEADER_BYTES, Codec, Message, is_offer, is_shared
from flambeau.messaging.transport import Socket, check_sizes, receive_frames, set_limits

if TYPE_CHECKING:
    from flambeau.messaging.sharing import SharedMemory

SEND_SECONDS = 60.0
LINGER_SECONDS = 3.0
_PATIENCE_MS = 100
MONITOR_ENDPOINT = "inproc://flambeau.monitor"

_PROBLEMS: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "refused this process: its secret is not that of this job",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: (
        "uses a different protocol; check that `encrypt` matches on both sides"
    ),
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: (
        "ended the handshake; check that the secret and `encrypt` match on both sides"
    ),
    zmq.EVENT_CLOSED: "cannot be reached",
    zmq.EVENT_DISCONNECTED: "ended the connection",
}


class Client(Generic[Message]):
    """A connected, authenticated socket. Not thread-safe: use it from one thread.

    It connects only once. After a `problem` it sends and receives nothing more; make a new client.
    """

    def __init__(
        self,
        codec: Codec[Message],
        secret: bytes,
        address: str,
        *,
        max_bytes: int = MAX_HEADER_BYTES,
        encrypt: bool = False,
        share: bool = False,
        silence_seconds: float | None = None,
    ) -> None:
        """Connect to a server. With `share`, large buffers go through shared memory if possible.

        Shared memory needs a server on the same machine that accepts offers, and is not used with
        `encrypt`. If the server's transport does not respond for `silence_seconds`, that is a
        `problem`: its machine is gone, or its process is stopped.
        """
        self._codec, self._max_bytes = codec, max_bytes
        self._context: zmq.Context[Socket] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self._events = self._watch()
        self._problem: str | None = None
        credentials(secret, encrypt=encrypt).show(self.socket)
        set_limits(self.socket, max_bytes)
        if silence_seconds is not None:
            self.socket.heartbeat_ivl = int(silence_seconds * 250)
            self.socket.heartbeat_timeout = int(silence_seconds * 1000)
        # A token is valid for one handshake, so the transport must not reconnect with it.
        self.socket.reconnect_ivl = -1
        # Undeliverable messages are dropped immediately; `close` sets another linger time.
        self.socket.linger = 0
        self.socket.connect(address)
        self.address = address
        self._shared: SharedMemory | None = None
        self._offered: SharedMemory | None = None
        if share and not encrypt:
            self._offer()

    def _offer(self) -> None:
        from flambeau.messaging import sharing  # loads numpy, which drivers do without

        self._offered = sharing.offer()
        if self._offered is not None:
            self._queue([sharing.offered(self._offered.file)])

    @property
    def shares(self) -> bool:
        """Whether the server has accepted the memory that it was offered."""
        return self._shared is not None

    def _watch(self) -> Socket:
        self.socket.monitor(MONITOR_ENDPOINT, sum(_PROBLEMS))
        events = self._context.socket(zmq.PAIR)
        events.connect(MONITOR_ENDPOINT)
        return events

    @property
    def problem(self) -> str | None:
        """Sentence that explains why there will be no more replies, or None."""
        while self._problem is None and self._events.poll(0):
            event = parse_monitor_message(self._events.recv_multipart())["event"]
            if event in _PROBLEMS:
                self._problem = f"{self.address} {_PROBLEMS[event]}"
        return self._problem

    def send(self, message: Message, buffers: Sequence[Any] = ()) -> bool:
        """Queue a message; return False if the server is gone and the message is lost.

        Wait at most `SEND_SECONDS` for room in the queue. Large buffers are not copied: the
        transport keeps their memory. Do not write to it again; send arrays that were made for this
        message, and drop them. After False, see `problem`.
        """
        frames = self._codec.encode(message, buffers)
        check_sizes(frames, self._max_bytes)
        if self._shared is not None:
            frames = self._shared.put(frames)
        return self._queue(frames) or self._queue_with_patience(frames)

    def _queue(self, frames: list[memoryview]) -> bool:
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return False
        return True

    def _queue_with_patience(self, frames: list[memoryview]) -> bool:
        deadline = time.monotonic() + SEND_SECONDS
        while self.problem is None:
            if time.monotonic() > deadline:
                raise RequestTimeoutError(
                    f"{self.address} took no message for {SEND_SECONDS:.1f} s; is it stopped?"
                )
            self.socket.poll(_PATIENCE_MS, zmq.POLLOUT)
            if self._queue(frames):
                return True
        return False

    def receive(self, timeout: float) -> tuple[Message, Sequence[memoryview]] | None:
        """Return the next message and its buffers, or None after `timeout` seconds (see `problem`).

        The receiver owns the buffers: they are writable, not shared, and alive as long as a view of
        them.
        """
        frames = receive_frames(self.socket, timeout)
        if frames is not None and self._offered is not None:
            frames = self._from_memory(frames, timeout)
        return None if frames is None else self._codec.decode(frames)

    def _from_memory(self, frames: list[memoryview], timeout: float) -> list[memoryview] | None:
        """Return this message with its buffers from shared memory, or else the next message."""
        assert self._offered is not None
        given: list[memoryview] | None = frames
        while given is not None and (is_offer(given) or is_shared(given)):
            self._shared = self._offered  # accepted: the server offers it back, or uses it
            found = self._shared.get(given) if is_shared(given) else None
            if found is not None:
                return found
            given = receive_frames(self.socket, timeout)
        return given

    def close(self, *, linger: float = LINGER_SECONDS) -> None:
        """Send queued messages for at most `linger` seconds, and close the connection."""
        if self.socket.closed:
            return
        self.socket.linger = int(linger * 1000)
        self.socket.disable_monitor()
        self._events.close(linger=0)
        if self._offered is not None:
            self._offered.file.close()
        self.socket.close()
        self._context.term()
