"""The store of torch.distributed, kept by the coordinator."""

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
    """The connection to the process that keeps the keys: of a role, or of a rank of Horovod's."""

    @property
    def spec(self) -> Any:
        """Which generation this is."""

    def send(self, message: Any, buffers: Sequence[Any] = ()) -> None:
        """Queue a request."""

    def on(self, kind: Any, handler: Any) -> None:
        """Set what handles replies."""


@final
class CoordinatorStore(Store):
    """Keys that all workers of a generation see. Its methods may be called by any thread.

    Keep a reference as long as torch uses it: torch holds no more than the C++ part. Queues are not
    supported, as in most stores of torch.
    """

    #: Kept by torch.
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
        """Return the value of a key, for which it waits."""
        return self.multi_get([key])[0]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there."""
        self._ask("wait", keys, timeout=timeout)

    def add(self, key: str, value: int) -> int:
        """Add to a number, which is 0 before; return the sum."""
        return self._ask("add", [key], amount=value)[0]

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the end of a value, which is empty before."""
        self._ask("append", [key], [value])

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there."""
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
        """Return the values of all keys, for which it waits."""
        return self._ask("get", keys)[1]

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether it was there."""
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
                f": another worker has not set what was asked for"
            ) from None
        finally:
            del self._asked[number]

    def _answered(self, reply: StoreReply, buffers: Sequence[Any]) -> None:
        """Take in a reply, in the link's thread; one that nobody waits for any more is dropped."""
        answer = self._asked.get(reply.number)
        if answer is None:
            return
        if reply.error:
            answer.set_exception(DistStoreError(reply.error))
        else:
            answer.set_result((reply.count, [bytes(buffer) for buffer in buffers]))


def _check_sizes(keys: list[str], values: list[bytes]) -> None:
    """Raise for what no message may carry; the coordinator checks what it keeps."""
    if len(keys) > MAX_KEYS_AT_ONCE or any(len(value) > MAX_VALUE_BYTES for value in values):
        largest = max(map(len, values), default=0)
        raise DistStoreError(
            f"a request to the store of torch.distributed with {len(keys):,} keys and values of up "
            f"to {largest:,} bytes; at most {MAX_KEYS_AT_ONCE:,} keys and {MAX_VALUE_BYTES:,} bytes"
        )
