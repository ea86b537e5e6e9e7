"""A worker's connection to one shard: requests that survive lost messages and lost servers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from flambeau import errors
from flambeau.errors import FlambeauError, RequestTimeoutError
from flambeau.messaging import Client
from flambeau.parameter_server.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    Answer,
    Declare,
    Messages,
    Refused,
    Request,
    Waiting,
)

#: Silence after which a request is resent on a new connection; doubled at each retry.
FIRST_RETRY_SECONDS = 2.0
LAST_RETRY_SECONDS = 16.0
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Access:
    """Access to shards. `address_of(shard)` is called again whenever a shard is silent.

    `timeout` is in seconds. With `share`, large buffers reach shards of this machine through shared
    memory.
    """

    secret: bytes
    address_of: Callable[[int], str]
    timeout: float
    encrypt: bool = False
    share: bool = False


@dataclass
class _Open:
    """Unanswered request; its buffers must not change until the answer arrives."""

    message: Request
    buffers: Sequence[Any]


@final
class Channel:
    """Requests to one shard, answered in any order. Used by one thread at a time."""

    def __init__(self, shard: int, access: Access) -> None:
        self.shard, self._access = shard, access
        self._address = access.address_of(shard)
        self._client = self._connect()
        self._open: dict[int, _Open] = {}
        self._declared: Declare | None = None
        self._answers: dict[int, tuple[Answer, Sequence[Any]]] = {}
        self._heard = time.monotonic()
        self._retry = FIRST_RETRY_SECONDS
        self.resent = 0

    @property
    def near(self) -> bool:
        """Return whether the shard is on this machine, so that large buffers use shared memory."""
        return self._client.shares

    def send(self, message: Request, buffers: Sequence[Any] = ()) -> int:
        """Send a request; return its number, by which `answer` finds the answer."""
        if not self._open:
            self._heard = time.monotonic()
        if isinstance(message, Declare):
            self._declared = message
        self._open[message.number] = _Open(message, buffers)
        self._client.send(message, buffers)
        return message.number

    def answer(self, number: int) -> tuple[Any, Sequence[Any]]:
        """Wait for the answer to a request; return the message and its buffers.

        Raises the server's error if it refused the request, and `RequestTimeoutError` if it stays
        silent.
        """
        while not self.wait(number):
            self._act_on_silence()
        message, buffers = self._answers.pop(number)
        if isinstance(message, Refused):
            raise _exception(message, self.shard)
        return message, buffers

    def wait(self, number: int) -> bool:
        """Wait for an answer until no message arrives for a while; return whether it arrived."""
        while number not in self._answers:
            received = self._client.receive(POLL_SECONDS)
            if received is None:
                return False
            self._take(*received)
        return True

    def attend(self) -> None:
        """Receive and resend as needed while waiting for other shards; raise refusals."""
        while (received := self._client.receive(0)) is not None:
            self._take(*received)
        for message, _ in self._answers.values():
            if isinstance(message, Refused):
                raise _exception(message, self.shard)
        if self._open:
            self._act_on_silence()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _take(self, message: Messages, buffers: Sequence[Any]) -> None:
        self._heard, self._retry = time.monotonic(), FIRST_RETRY_SECONDS
        number = message.number
        if isinstance(message, Waiting) or number not in self._open:
            return  # an answer that arrived twice
        del self._open[number]
        self._answers[number] = (message, buffers)  # type: ignore[assignment]

    def _act_on_silence(self) -> None:
        silent = time.monotonic() - self._heard
        moved = self._access.address_of(self.shard) != self._address
        if silent > self._access.timeout and not moved:
            raise RequestTimeoutError(
                f"server {self.shard} at {self._address} has not answered for {silent:.0f} s; is "
                "its machine overloaded or unreachable? (timeout= of the strategy)"
            )
        # If the transport already reports a lost connection, there is no need to wait.
        if moved or silent > self._retry or self._client.problem is not None:
            self._retry = min(2 * self._retry, LAST_RETRY_SECONDS)
            self._reconnect()
            if moved:
                self._heard = time.monotonic()

    def _reconnect(self) -> None:
        self._client.close(linger=0)
        self._address = self._access.address_of(self.shard)
        self._client = self._connect()
        if self._declared is not None and self._declared.number not in self._open:
            # A replacement server must first receive the declaration of tables and weights.
            self._client.send(self._declared)
        for request in self._open.values():
            self._client.send(request.message, request.buffers)
            self.resent += 1

    def _connect(self) -> Client[Messages]:
        access = self._access
        return Client(
            CODEC,
            access.secret,
            self._address,
            max_bytes=MAX_FRAME_BYTES,
            encrypt=access.encrypt,
            share=access.share,
        )


def _exception(refused: Refused, shard: int) -> Exception:
    if refused.errno:
        return OSError(refused.errno, refused.text)
    kind = getattr(errors, refused.error, None)
    if isinstance(kind, type) and issubclass(kind, FlambeauError):
        return kind(refused.text)
    return errors.MessagingError(f"server {shard} refused: {refused.error}: {refused.text}")
