"""Which operations all ranks have requested: pure, without sockets or tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from flambeau.compat.horovod.cache import AgreementCache
from flambeau.compat.horovod.messages import ALL, Agreed, Agreement, Request
from flambeau.compat.horovod.mismatches import mismatch

Key = tuple[int, str]
#: How long the same name may wait in two process sets before it counts as a mistake.
CROSSED_SECONDS = 3.0


@dataclass
class _Pending:
    """The requests of one name so far, by rank."""

    since: float
    requests: dict[int, Request] = field(default_factory=dict)
    #: The agreement in the cache that all requests so far have named.
    cached: int | None = None


@final
class Negotiator:
    """Collects requests of all ranks and puts those that are complete into one order."""

    def __init__(self, size: int, capacity: int = 1024) -> None:
        self.sets: dict[int, list[int]] = {ALL: list(range(size))}
        self._next_set = 1
        self._pending: dict[Key, _Pending] = {}
        self._ready: list[Agreement | int] = []
        self._groups: dict[tuple[int, str], list[tuple[Agreement, Agreement | int]]] = {}
        self._cache = AgreementCache(capacity)
        self._joined: list[int] = []

    def submit(self, rank: int, items: Sequence[Request | int], now: float) -> None:
        """Take in requests of a rank."""
        for item in items:
            cached = item if isinstance(item, int) else None
            request = item if isinstance(item, Request) else self._cache.request(item, rank)
            self._add(rank, request, cached, now)

    def _add(self, rank: int, request: Request, cached: int | None, now: float) -> None:
        first = request.key not in self._pending
        pending = self._pending.setdefault(request.key, _Pending(now, cached=cached))
        pending.requests[rank] = request
        if not first and pending.cached != cached:
            pending.cached = None
        if request.kind == "join":
            self._joined.append(rank)
            self._complete_others()
        self._complete(request.key)

    def take(self) -> Agreed | None:
        """Return what has become complete since the last call."""
        if not self._ready:
            return None
        items, self._ready = self._ready, []
        return Agreed(items, self._cache.evict())

    @property
    def has_ready(self) -> bool:
        """Whether `take` returns anything."""
        return bool(self._ready)

    def _complete_others(self) -> None:
        """A rank that has joined takes part in what the others wait for."""
        for key in list(self._pending):
            self._complete(key)

    def _complete(self, key: Key) -> None:
        pending = self._pending.get(key)
        if pending is None or self._missing(key):
            return
        del self._pending[key]
        # The order of ranks, and so messages, do not depend on who came first.
        requests = dict(sorted(pending.requests.items()))
        agreement = self._agreement(key, requests)
        item: Agreement | int = agreement
        if not agreement.error:
            if pending.cached is not None and self._cache.use(pending.cached):
                item = pending.cached
            elif len(requests) == len(self.sets.get(key[0], ())):
                item = self._cache.add(agreement, requests)
        self._release(agreement, item)

    def _release(self, agreement: Agreement, item: Agreement | int) -> None:
        """Make an agreement ready, once all of its group are; they succeed or fail together."""
        request = agreement.request
        if not request.group:
            self._ready.append(item)
            return
        group = self._groups.setdefault((request.process_set, request.group), [])
        group.append((agreement, item))
        if len(group) < request.group_size:
            return
        del self._groups[request.process_set, request.group]
        errors = [each.error for each, _ in group if each.error]
        for each, ready in group:
            self._ready.append(Agreement(each.request, error=errors[0]) if errors else ready)

    def _agreement(self, key: Key, requests: dict[int, Request]) -> Agreement:
        members = self.sets.get(key[0])
        first = next(iter(requests.values()))
        if members is None:
            return Agreement(first, error=f"Process set {key[0]} of '{key[1]}' has been removed.")
        error = mismatch(requests, members, joined=len(requests) < len(members))
        if error:
            return Agreement(first, error=error)
        return Agreement(first, self._sizes(first, members, requests))

    def _sizes(self, first: Request, members: list[int], requests: dict[int, Request]) -> list[int]:
        match first.kind:
            case "allgather":
                return [requests[rank].shape[0] for rank in members]
            case "alltoall":
                return [rows for rank in members for rows in requests[rank].splits]
            case "join":
                last, self._joined = self._joined[-1], []
                return [last]
            case "add_process_set":
                return [self._add_set(first.splits)]
            case "remove_process_set":
                self.sets.pop(first.root, None)
        return []

    def _add_set(self, ranks: list[int]) -> int:
        number, self._next_set = self._next_set, self._next_set + 1
        self.sets[number] = list(ranks)
        return number

    def _missing(self, key: Key) -> list[int]:
        """Return the ranks that have neither requested this nor joined."""
        requests = self._pending[key].requests
        kinds = {request.kind for request in requests.values()}
        there = set(requests) if kinds == {"join"} else {*requests, *self._joined}
        return [rank for rank in self.sets.get(key[0], []) if rank not in there]

    # What waits for too long

    def check_crossed(self, now: float) -> None:
        """Fail operations that ranks have requested for different process sets."""
        for name, keys in list(self._names_in_several_sets(now)):
            ranks = {key[0]: sorted(self._pending[key].requests) for key in keys}
            lacking = {rank for key in keys for rank in self._missing(key)}
            if not lacking & {rank for there in ranks.values() for rank in there}:
                continue
            shown = ", ".join(f"ranks {there} use set {number}" for number, there in ranks.items())
            for key in keys:
                first = next(iter(self._pending.pop(key).requests.values()))
                error = f"Mismatched process sets of '{name}': {shown}."
                self._ready.append(Agreement(first, error=error))

    def _names_in_several_sets(self, now: float) -> Iterator[tuple[str, list[Key]]]:
        by_name: dict[str, list[Key]] = {}
        for key, pending in self._pending.items():
            if now - pending.since > CROSSED_SECONDS:
                by_name.setdefault(key[1], []).append(key)
        yield from ((name, keys) for name, keys in by_name.items() if len(keys) > 1)

    def stalled(self, now: float, seconds: float) -> list[tuple[str, list[int]]]:
        """Return names that have waited for so long, with the ranks that lack them."""
        return [
            (key[1], self._missing(key))
            for key, pending in self._pending.items()
            if now - pending.since > seconds
        ]
