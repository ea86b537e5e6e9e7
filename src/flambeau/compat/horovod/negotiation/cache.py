"""A cache of earlier agreements, whose requests ranks repeat by number."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from flambeau.compat.horovod.negotiation.messages import Agreement, Request
from flambeau.errors import ProtocolError

#: Evicted entries kept for requests that are still in transit, as a multiple of the capacity.
RETIRED = 8


@dataclass(frozen=True)
class _Entry:
    agreement: Agreement
    requests: dict[int, Request]

    @property
    def key(self) -> tuple[int, str]:
        return self.agreement.request.key


@final
class AgreementCache:
    """The controller's cache by number, least recently used first. Numbers are never reused."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._retired: OrderedDict[int, _Entry] = OrderedDict()
        self._by_name: dict[tuple[int, str], int] = {}
        self._dropped: list[int] = []
        self._next = 0
        #: The numbers of agreements that belong to a group.
        self.grouped: set[int] = set()

    def number(self, key: tuple[int, str]) -> int | None:
        """Return the number of the agreement with a key, if there is one."""
        return self._by_name.get(key)

    def known(self, numbers: Iterable[int]) -> set[int]:
        """Return those of the numbers that ranks still have in their caches."""
        return set(numbers) & self._entries.keys()

    def agreement(self, number: int) -> Agreement:
        """Return the agreement that ranks have under a number."""
        return self._entries[number].agreement

    def request(self, number: int, rank: int) -> Request:
        """Return the request that a rank repeats by the number of an agreement."""
        entry = self._entries.get(number) or self._retired.get(number)
        if entry is None or rank not in entry.requests:
            raise ProtocolError(f"rank {rank} repeats an agreement {number} that is not known")
        return entry.requests[rank]

    def use(self, numbers: Iterable[int]) -> None:
        """Mark agreements as most recently used."""
        for number in numbers:
            self._entries.move_to_end(number)

    def add(self, agreement: Agreement, requests: dict[int, Request]) -> Agreement:
        """Return the agreement, numbered and cached if it can be repeated."""
        request = agreement.request
        if not self._capacity or request.kind in ("join", "add_process_set", "remove_process_set"):
            return agreement
        number, self._next = self._next, self._next + 1
        self._drop(self._by_name.pop(request.key, None))
        self._entries[number] = _Entry(agreement, requests)
        self._by_name[request.key] = number
        if request.group:
            self.grouped.add(number)
        return Agreement(request, agreement.sizes, cache_id=number)

    def evict(self) -> list[int]:
        """Evict entries above the capacity; return the numbers dropped since the last call."""
        while len(self._entries) > self._capacity:
            number = next(iter(self._entries))
            self._by_name.pop(self._entries[number].key, None)
            self._drop(number)
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop(self, number: int | None) -> None:
        if number is None:
            return
        self._retired[number] = self._entries.pop(number)
        self._dropped.append(number)
        self.grouped.discard(number)
        while len(self._retired) > RETIRED * max(1, self._capacity):
            self._retired.popitem(last=False)
