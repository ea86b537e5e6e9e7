"""Server side: one socket that receives from many peers, in order of arrival."""

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import zmq

from flambeau.errors import MessagingError, ProtocolError
from flambeau.messaging.authenticator import Authenticator
from flambeau.messaging.credentials import credentials
from flambeau.messaging.frames import MAX_HEADER_BYTES, Codec, Message, is_offer, is_shared
from flambeau.messaging.refusals import Refusals
from flambeau.messaging.transport import Socket, check_sizes, receive_frames, set_limits

if TYPE_CHECKING:
    from flambeau.messaging.sharing import Room, SharedMemory

HIGH_WATER = 10_000
BACKLOG = 1024


@dataclass(frozen=True)
class Envelope(Generic[Message]):
    """A message, its buffers, and the peer to reply to.

    The receiver owns the buffers: they are writable, not shared, and alive as long as a view of
    them.
    """

    peer: bytes
    message: Message
    buffers: Sequence[memoryview]


class Server(Generic[Message]):
    """A bound, authenticated socket. Not thread-safe: use it from one thread.

    No frame may be longer than `max_bytes`. At most `high_water` messages wait for each peer.
    `on_refusal` receives a sentence for each peer that is refused, in the thread that calls
    `receive`. A peer with the job's secret is trusted with memory: a message that it begins and
    never ends is kept until it disconnects. With `share`, the server accepts memory that clients of
    this machine offer for large buffers.
    """

    def __init__(
        self,
        codec: Codec[Message],
        secret: bytes,
        host: str,
        port: int = 0,
        *,
        max_bytes: int = MAX_HEADER_BYTES,
        encrypt: bool = False,
        high_water: int = HIGH_WATER,
        on_refusal: Callable[[str], None] | None = None,
        share: bool = False,
    ) -> None:
        self._codec, self._max_bytes = codec, max_bytes
        self._shares = share
        self._shared: dict[bytes, SharedMemory] = {}
        self._refusals = Refusals(on_refusal)
        self._context: zmq.Context[Socket] = zmq.Context()
        #: For polling together with other sockets; only `receive` may read from it.
        self.socket = self._context.socket(zmq.ROUTER)
        self._authenticator = self._guard(secret, encrypt)
        self._set_queues(high_water)
        set_limits(self.socket, max_bytes)
        self.address = self._bind(host, port)

    def _guard(self, secret: bytes, encrypt: bool) -> Authenticator:
        ours = credentials(secret, encrypt=encrypt)
        ours.guard(self.socket)
        self.socket.zap_domain = b"flambeau"
        # A peer is refused unless the authenticator answers.
        self.socket.zap_enforce_domain = True
        return Authenticator(self.socket, ours, self._refusals)

    def _set_queues(self, high_water: int) -> None:
        self.socket.linger = 1000
        self.socket.backlog = BACKLOG
        self.socket.rcvhwm = self.socket.sndhwm = high_water
        # Sending fails if the peer is gone or its queue is full; by default it would drop silently.
        self.socket.router_mandatory = True

    def _bind(self, host: str, port: int) -> str:
        try:
            self.socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            advice = "choose another port"
            if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
                advice = "this machine has no such address: use an address of this machine (host=)"
            raise MessagingError(
                f"cannot listen on {host}:{port or 'any port'}: {error}; {advice}"
            ) from None
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        return endpoint.decode().rstrip("\0")

    @property
    def refused(self) -> Counter[str]:
        """Number of refusals, by reason."""
        return self._refusals.counts

    def receive(self, timeout: float) -> Envelope[Message] | None:
        """Return the next message, or None after `timeout` seconds or for a malformed message."""
        frames = receive_frames(self.socket, timeout)
        while frames is not None and self._shares and is_offer(frames[1:]):
            self._take(frames[0].tobytes(), frames[1:])
            frames = receive_frames(self.socket, timeout)
        envelope = None if frames is None else self._open(frames)
        self._refusals.tell()
        return envelope

    def _open(self, frames: list[memoryview]) -> Envelope[Message] | None:
        peer, frames = frames[0].tobytes(), frames[1:]
        try:
            if peer in self._shared and is_shared(frames):
                found = self._shared[peer].get(frames)
                if found is None:
                    return None
                frames = found
            return Envelope(peer, *self._codec.decode(frames))
        except ProtocolError as error:
            self._refusals.add(f"peer {peer.hex()}", str(error))
            return None

    def _take(self, peer: bytes, frames: list[memoryview]) -> None:
        """Accept the memory that a peer offers, and drop that of peers that are gone."""
        from flambeau.messaging import sharing  # loads numpy, which drivers do without

        self._shared = {other: each for other, each in self._shared.items() if each.file.is_there}
        try:
            memory = sharing.taken(frames)
        except ProtocolError as error:
            self._refusals.add(f"peer {peer.hex()}", str(error))
            return
        if memory is not None and self._post(peer, [sharing.offered(memory.file)]):
            self._shared[peer] = memory

    def room(self, peer: bytes, sizes: Sequence[int]) -> "Room | None":
        """Return shared memory to make buffers of these sizes in (see `send`), or None."""
        return self._shared[peer].room(sizes) if peer in self._shared else None

    def send(
        self, peer: bytes, message: Message, buffers: Sequence[Any] = (), room: "Room | None" = None
    ) -> bool:
        """Queue a message for a peer without waiting; False if the peer is gone or takes no more.

        `room` must be one for exactly these buffers, whether they were made in it or not. Large
        buffers are not copied: the transport keeps their memory. Do not write to it again; send
        arrays that were made for this message, and drop them.
        """
        frames = self._codec.encode(message, buffers)
        check_sizes(frames, self._max_bytes)
        memory = self._shared.get(peer)
        if memory is not None:
            frames = memory.put(frames, room)
        sent = self._post(peer, frames)
        if memory is not None and not sent:
            memory.take_back(frames)
        return sent

    def _post(self, peer: bytes, frames: Sequence[memoryview]) -> bool:
        try:
            self.socket.send_multipart([peer, *frames], zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:
            if error.errno in (errno.EAGAIN, errno.EHOSTUNREACH):
                return False
            raise
        return True

    def close(self) -> None:
        """Send queued messages (for at most a second) and free the port."""
        if self.socket.closed:
            return
        self.socket.disable_monitor()
        self.socket.close()
        self._context.term()
        self._shared.clear()
        self._authenticator.join()
        self._refusals.tell()
