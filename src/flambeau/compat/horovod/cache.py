"""Agreements that were reached before: ranks repeat their requests by a number."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import final

from flambeau.compat.horovod.messages import Agreement, Request
from flambeau.errors import ProtocolError

#: Evicted entries that are still known, for requests that were on their way: multiples of capacity.
RETIRED = 8


@dataclass(frozen=True)
class _Entry:
    name: tuple[int, str]
    requests: dict[int, Request]


@final
class AgreementCache:
    """The controller's side: numbers of agreements, least recently used first. Never reused."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._retired: OrderedDict[int, _Entry] = OrderedDict()
        self._by_name: dict[tuple[int, str], int] = {}
        self._dropped: list[int] = []
        self._next = 0

    def request(self, number: int, rank: int) -> Request:
        """Return what a rank has requested by the number of an agreement."""
        entry = self._entries.get(number) or self._retired.get(number)
        if entry is None or rank not in entry.requests:
            raise ProtocolError(f"rank {rank} repeats an agreement {number} that is not known")
        return entry.requests[rank]

    def use(self, number: int) -> bool:
        """Return whether ranks still have this agreement, which is in use again."""
        if number not in self._entries:
            return False
        self._entries.move_to_end(number)
        return True

    def add(self, agreement: Agreement, requests: dict[int, Request]) -> Agreement:
        """Return the agreement with its number, if it can be repeated."""
        request = agreement.request
        if not self._capacity or request.kind in ("join", "add_process_set", "remove_process_set"):
            return agreement
        number, self._next = self._next, self._next + 1
        self._drop(self._by_name.pop(request.key, None))
        self._entries[number] = _Entry(request.key, requests)
        self._by_name[request.key] = number
        return Agreement(request, agreement.sizes, cache_id=number)

    def evict(self) -> list[int]:
        """Return the numbers to forget since the last call, beyond the capacity and replaced."""
        while len(self._entries) > self._capacity:
            number = next(iter(self._entries))
            self._by_name.pop(self._entries[number].name, None)
            self._drop(number)
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop(self, number: int | None) -> None:
        if number is None:
            return
        self._retired[number] = self._entries.pop(number)
        self._dropped.append(number)
        while len(self._retired) > RETIRED * max(1, self._capacity):
            self._retired.popitem(last=False)
