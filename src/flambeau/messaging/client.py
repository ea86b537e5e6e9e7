"""The side that connects to one server."""

from collections.abc import Sequence
from typing import Any, Generic

import zmq

from flambeau.messaging.frames import MAX_HEADER_BYTES, Codec, Message
from flambeau.messaging.tokens import new_token


class Client(Generic[Message]):
    """A connected, authenticated socket. Used by one thread."""

    def __init__(self, codec: Codec[Message], secret: bytes, address: str) -> None:
        self._codec = codec
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        user, password = new_token(secret)
        self.socket.plain_username = user
        self.socket.plain_password = password
        self.socket.maxmsgsize = MAX_HEADER_BYTES
        # A token is good for one handshake, so the transport must not try again with it.
        self.socket.reconnect_ivl = -1
        self.socket.linger = 3000
        self.socket.connect(address)
        self.address = address

    def send(self, message: Message, buffers: Sequence[Any] = ()) -> None:
        """Queue a message."""
        self.socket.send_multipart(self._codec.encode(message, buffers))

    def receive(self, timeout: float) -> tuple[Message, Sequence[bytes]] | None:
        """The next message and its buffers, or None after `timeout` seconds."""
        if not self.socket.poll(int(timeout * 1000)):
            return None
        return self._codec.decode(self.socket.recv_multipart())

    def close(self) -> None:
        """Send what is queued (for at most three seconds) and end."""
        self.socket.close()
        self._context.term()
