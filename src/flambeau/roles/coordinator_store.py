"""A store for torch.distributed, kept by the coordinator."""

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Protocol, final

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

from flambeau.coordination.rendezvous import (
    MAX_KEYS_AT_ONCE,
    MAX_VALUE_BYTES,
    Operation,
    StoreReply,
    StoreRequest,
)

_Answer = tuple[int, list[bytes]]


class StoreChannel(Protocol):
    """A connection to the process that keeps the keys, of a role or of a Horovod rank."""

    @property
    def spec(self) -> Any:
        """Spec with the generation of this process."""

    def send(self, message: Any, buffers: Sequence[Any] = ()) -> None:
        """Queue a request."""

    def on(self, kind: Any, handler: Any) -> None:
        """Set what handles replies."""


@final
class CoordinatorStore(Store):
    """Keys that all workers of a generation share. Its methods may be called by any thread.

    Keep a reference as long as torch uses it: torch holds only the C++ part. Queues are not
    supported, as in most stores of torch.
    """

    #: Stored by torch.
    timeout: timedelta

    def __init__(self, coordinator: StoreChannel, timeout: timedelta) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._coordinator = coordinator
        self._numbers = itertools.count()
        self._asked: dict[int, Future[_Answer]] = {}
        coordinator.on(StoreReply, self._answered)

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self.multi_set([key], [value])

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value."""
        return self.multi_get([key])[0]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys exist."""
        self._ask("wait", keys, timeout=timeout)

    def add(self, key: str, value: int) -> int:
        """Add to a number, 0 if the key is new; return the sum."""
        return self._ask("add", [key], amount=value)[0]

    def append(self, key: str, value: str | bytes) -> None:
        """Append to a value, empty if the key is new."""
        self._ask("append", [key], [value])

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist."""
        return bool(self._ask("check", keys)[0])

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Set a key if it has the expected value; return the value that it has afterwards."""
        return self._ask("compare_set", [key], [expected_value, desired_value])[1][0]

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        """Set all keys at once."""
        self._ask("set", keys, values)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Wait for all keys and return their values."""
        return self._ask("get", keys)[1]

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether it existed."""
        return bool(self._ask("delete", [key])[0])

    def num_keys(self) -> int:
        """Return the number of keys."""
        return self._ask("count", [])[0]

    def has_extended_api(self) -> bool:
        """Return whether `append`, `multi_get` and `multi_set` exist."""
        return True

    def clone(self) -> "CoordinatorStore":
        """Return a store for another thread: this one, which any thread may use."""
        return self

    # The names by which torch's own code finds them.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def _ask(
        self,
        operation: Operation,
        keys: list[str],
        values: Sequence[str | bytes] = (),
        *,
        amount: int = 0,
        timeout: timedelta | None = None,
    ) -> _Answer:
        seconds = (timeout or self.timeout).total_seconds()
        buffers = [each.encode() if isinstance(each, str) else bytes(each) for each in values]
        _check_sizes(keys, buffers)
        number, answer = next(self._numbers), Future[_Answer]()
        self._asked[number] = answer
        generation = self._coordinator.spec.generation
        request = StoreRequest(generation, number, operation, list(keys), amount, seconds)
        self._coordinator.send(request, buffers)
        try:
            return answer.result(seconds)
        except TimeoutError:
            raise DistStoreError(
                f"wait timeout after {seconds:.0f} s for {', '.join(keys[:3]) or 'the coordinator'}"
                f": another worker has not set these keys"
            ) from None
        finally:
            del self._asked[number]

    def _answered(self, reply: StoreReply, buffers: Sequence[Any]) -> None:
        """Process a reply in the connection's thread; drop it if its request has timed out."""
        answer = self._asked.get(reply.number)
        if answer is None:
            return
        if reply.error:
            answer.set_exception(DistStoreError(reply.error))
        else:
            answer.set_result((reply.count, [bytes(buffer) for buffer in buffers]))


def _check_sizes(keys: list[str], values: list[bytes]) -> None:
    """Raise if a request is too large for a message; the coordinator limits what it keeps."""
    if len(keys) > MAX_KEYS_AT_ONCE or any(len(value) > MAX_VALUE_BYTES for value in values):
        largest = max(map(len, values), default=0)
        raise DistStoreError(
            f"a request to the store of torch.distributed with {len(keys):,} keys and values of up "
            f"to {largest:,} bytes; at most {MAX_KEYS_AT_ONCE:,} keys and {MAX_VALUE_BYTES:,} bytes"
        )
