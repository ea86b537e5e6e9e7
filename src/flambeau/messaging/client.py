"""The side that connects to one server."""

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
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "speaks otherwise: is `encrypt` the same on both sides?",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "ended the handshake: are secret and `encrypt` the same?",
    zmq.EVENT_CLOSED: "cannot be reached",
    zmq.EVENT_DISCONNECTED: "ended the connection",
}


class Client(Generic[Message]):
    """A connected, authenticated socket. Used by one thread.

    It connects once: after a `problem` nothing more is sent or received, make a new one.
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
        """With `share` large buffers go through memory if the server, which must take offers, can.

        Not if they are to be encrypted. A server that does not even answer the transport for
        `silence_seconds` is a `problem`: its machine is gone, or its process is stopped.
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
        # A token is good for one handshake, so the transport must not try again with it.
        self.socket.reconnect_ivl = -1
        # What cannot be delivered any more is dropped at once; `close` gives the rest its time.
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
        """Whether the server has taken the memory that it was offered."""
        return self._shared is not None

    def _watch(self) -> Socket:
        self.socket.monitor(MONITOR_ENDPOINT, sum(_PROBLEMS))
        events = self._context.socket(zmq.PAIR)
        events.connect(MONITOR_ENDPOINT)
        return events

    @property
    def problem(self) -> str | None:
        """Why there will be no more answers, in a sentence; None as long as all is well."""
        while self._problem is None and self._events.poll(0):
            event = parse_monitor_message(self._events.recv_multipart())["event"]
            if event in _PROBLEMS:
                self._problem = f"{self.address} {_PROBLEMS[event]}"
        return self._problem

    def send(self, message: Message, buffers: Sequence[Any] = ()) -> bool:
        """Queue a message; False if the server is gone, and the message with it (see `problem`).

        Waits at most `SEND_SECONDS` for room in the queue. Large buffers are not copied: their
        memory is lent to the transport for good. Do not write to it again; send arrays that were
        made for this message, and forget them.
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
        """The next message and its buffers, or None after `timeout` seconds (see `problem`).

        The buffers are the receiver's own: writable, shared with nothing, alive while a view is.
        """
        frames = receive_frames(self.socket, timeout)
        if frames is not None and self._offered is not None:
            frames = self._from_memory(frames, timeout)
        return None if frames is None else self._codec.decode(frames)

    def _from_memory(self, frames: list[memoryview], timeout: float) -> list[memoryview] | None:
        """The message, with its buffers if they are in shared memory, or the next one."""
        assert self._offered is not None
        given: list[memoryview] | None = frames
        while given is not None and (is_offer(given) or is_shared(given)):
            self._shared = self._offered  # taken: the server says so, or uses it
            found = self._shared.get(given) if is_shared(given) else None
            if found is not None:
                return found
            given = receive_frames(self.socket, timeout)
        return given

    def close(self, *, linger: float = LINGER_SECONDS) -> None:
        """Send what is queued, for at most `linger` seconds, and end."""
        if self.socket.closed:
            return
        self.socket.linger = int(linger * 1000)
        self.socket.disable_monitor()
        self._events.close(linger=0)
        if self._offered is not None:
            self._offered.file.close()
        self.socket.close()
        self._context.term()
