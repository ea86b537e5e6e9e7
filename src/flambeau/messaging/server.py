"""The side that binds: messages from many peers, in order of arrival."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import zmq

from flambeau.errors import MessagingError, ProtocolError
from flambeau.messaging.authenticator import Authenticator
from flambeau.messaging.frames import MAX_HEADER_BYTES, Codec, Message

HIGH_WATER = 10_000


@dataclass(frozen=True)
class Envelope(Generic[Message]):
    """A message, its buffers, and whom to answer."""

    peer: bytes
    message: Message
    buffers: Sequence[bytes]


class Server(Generic[Message]):
    """A bound, authenticated socket. Used by one thread."""

    def __init__(self, codec: Codec[Message], secret: bytes, host: str, port: int = 0) -> None:
        self._codec = codec
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = Authenticator(self._context, secret)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.plain_server = True
        self._socket.zap_domain = b"flambeau"
        self._socket.linger = 1000
        self._socket.rcvhwm = self._socket.sndhwm = HIGH_WATER
        self._socket.maxmsgsize = MAX_HEADER_BYTES
        self.refused: Counter[str] = Counter()
        try:
            self._socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            raise MessagingError(
                f"cannot listen on {host}:{port or 'any port'}: {error}; choose another port"
            ) from None
        endpoint = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = endpoint.decode().rstrip("\0")

    def receive(self, timeout: float) -> Envelope[Message] | None:
        """The next message, or None after `timeout` seconds. Malformed ones are only counted."""
        if not self._socket.poll(int(timeout * 1000)):
            return None
        peer, *frames = self._socket.recv_multipart()
        try:
            message, buffers = self._codec.decode(frames)
        except ProtocolError as error:
            self.refused[str(error)] += 1
            return None
        return Envelope(peer, message, buffers)

    def send(self, peer: bytes, message: Message, buffers: Sequence[Any] = ()) -> None:
        """Queue a message for a peer; if it is gone, the message is too."""
        self._socket.send_multipart([peer, *self._codec.encode(message, buffers)])

    def close(self) -> None:
        """Send what is queued (for at most a second) and free the port."""
        self._socket.close()
        self._context.term()
        self._authenticator.join()
