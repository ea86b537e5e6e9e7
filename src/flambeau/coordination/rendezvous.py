"""Key-value store by which the workers of a generation find each other, kept by the coordinator.

torch.distributed needs such a store. Its own store listens on a port without authentication;
requests to this one use the existing connection of a role to the coordinator.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import msgspec

MAX_KEYS = 100_000
#: Limits of one value, and of all keys and values together.
MAX_VALUE_BYTES = 16 << 20
MAX_BYTES = 256 << 20
#: Limit of the keys in one request: each value is a buffer of a message.
MAX_KEYS_AT_ONCE = 4096

Operation = Literal[
    "set", "get", "wait", "add", "append", "check", "compare_set", "delete", "count"
]


class StoreRequest(msgspec.Struct, frozen=True, tag=True):
    """Operation on keys of a generation; its values are the message's buffers.

    `add` adds `amount`. `get` and `wait` are answered when all keys exist, if that is within
    `seconds`.
    """

    generation: int
    number: int
    operation: Operation
    keys: list[str]
    amount: int = 0
    seconds: float = 0.0


class StoreReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to the request with this number: a count, values as buffers, or an error."""

    number: int
    count: int = 0
    error: str = ""


@dataclass(frozen=True)
class _Waiting:
    peer: bytes
    request: StoreRequest
    until: float


#: Function that sends a reply and its buffers to a peer.
Reply = Callable[[bytes, StoreReply, Sequence[bytes]], object]


@final
class Rendezvous:
    """Keys and values of one generation, and the requests that wait for keys."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.begin(0)

    def begin(self, generation: int) -> None:
        """Remove all keys and begin a generation; requests of other generations are ignored."""
        self._generation = generation
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._waiting: list[_Waiting] = []

    def handle(self, peer: bytes, request: StoreRequest, buffers: Sequence[Any]) -> None:
        """Answer a request, or hold it until all its keys exist."""
        if request.generation != self._generation:
            return
        if request.operation in ("get", "wait"):
            self._wait(_Waiting(peer, request, time.monotonic() + request.seconds))
            return
        try:
            _check(request, len(buffers))
            reply, values = self._apply(request, [bytes(buffer) for buffer in buffers])
        except ValueError as error:
            reply, values = StoreReply(request.number, error=str(error)), []
        self._reply(peer, reply, values)
        self._answer_waiting()

    def _apply(
        self, request: StoreRequest, values: list[bytes]
    ) -> tuple[StoreReply, Sequence[bytes]]:
        count, found = 0, []
        key = next(iter(request.keys), "")
        match request.operation:
            case "set":
                for each, value in zip(request.keys, values, strict=True):
                    self._put(each, value)
            case "add":
                count = int(self._values.get(key, b"0")) + request.amount
                self._put(key, str(count).encode())
            case "append":
                self._put(key, self._values.get(key, b"") + values[0])
            case "check":
                count = self._has_all(request)
            case "compare_set":
                found = [self._compare_set(key, *values)]
            case "delete":
                count = key in self._values
                self._drop(key)
            case "count":
                count = len(self._values)
        return StoreReply(request.number, int(count)), found

    def _compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Return the value afterwards, as torch's stores do: a missing key counts as empty."""
        current = self._values.get(key)
        if current == expected or (current is None and not expected):
            self._put(key, desired)
            return desired
        return expected if current is None else current

    def _put(self, key: str, value: bytes) -> None:
        held = self._values.get(key)
        grows = len(value) - len(held) if held is not None else len(value) + len(key)
        full = held is None and len(self._values) >= MAX_KEYS
        if full or len(value) > MAX_VALUE_BYTES or self._bytes + grows > MAX_BYTES:
            raise ValueError(
                f"the store of torch.distributed cannot take {len(value):,} bytes as {key!r}: a "
                f"value has at most {MAX_VALUE_BYTES >> 20} MB, and the store {MAX_KEYS:,} keys "
                f"and {MAX_BYTES >> 20} MB; send large values with a collective instead"
            )
        self._bytes += grows
        self._values[key] = value

    def _drop(self, key: str) -> None:
        if key in self._values:
            self._bytes -= len(key) + len(self._values.pop(key))

    def _has_all(self, request: StoreRequest) -> bool:
        return all(key in self._values for key in request.keys)

    def _wait(self, waiting: _Waiting) -> None:
        now = time.monotonic()
        self._waiting = [each for each in self._waiting if each.until > now]
        self._waiting.append(waiting)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        ready = [each for each in self._waiting if self._has_all(each.request)]
        for each in ready:
            self._waiting.remove(each)
            wanted = each.request.keys if each.request.operation == "get" else []
            values = [self._values[key] for key in wanted]
            self._reply(each.peer, StoreReply(each.request.number), values)


def _check(request: StoreRequest, values: int) -> None:
    """Raise `ValueError` for a request without the keys and values that its operation needs."""
    keys = len(request.keys)
    expected = {"set": keys, "append": 1, "compare_set": 2}.get(request.operation, 0)
    one_key = request.operation in ("add", "append", "compare_set", "delete")
    if values != expected or (one_key and keys != 1):
        raise ValueError(f"{request.operation} with {keys} keys and {values} values")
