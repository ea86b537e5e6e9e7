"""Matching of the operations that all ranks have requested, without sockets or tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from flambeau.compat.horovod.negotiation.cache import AgreementCache
from flambeau.compat.horovod.negotiation.messages import ALL, Agreed, Agreement, Request
from flambeau.compat.horovod.negotiation.mismatches import mismatch
from flambeau.compat.horovod.negotiation.repeats import Repeats

Key = tuple[int, str]
#: Seconds that the same name may wait in two process sets before that is an error.
CROSSED_SECONDS = 3.0


@dataclass
class _Pending:
    """The requests with one key so far, by rank."""

    since: float
    requests: dict[int, Request] = field(default_factory=dict)


@final
class Negotiator:
    """A collection of all ranks' requests, which puts the complete ones into one order."""

    def __init__(self, size: int, capacity: int = 1024) -> None:
        self.sets: dict[int, list[int]] = {ALL: list(range(size))}
        self._next_set = 1
        self._pending: dict[Key, _Pending] = {}
        self._ready: list[Agreement | int] = []
        self._groups: dict[tuple[int, str], list[tuple[Agreement, Agreement | int]]] = {}
        self._cache = AgreementCache(capacity)
        self._repeats = Repeats()
        #: Numbers of agreements whose keys are pending: a rank has changed its request.
        self._changed: set[int] = set()
        self._joined: list[int] = []

    def submit(self, rank: int, requests: Sequence[Request], now: float) -> None:
        """Add requests of a rank."""
        for request in requests:
            number = self._cache.number(request.key)
            if number is not None:
                self._changed.add(number)
                self._expand(number)
            self._add(rank, request, now)

    def repeat(self, rank: int, process_set: int, numbers: Sequence[int], now: float) -> None:
        """Add requests that a rank repeats, by the numbers of agreements of a process set."""
        members = self.sets.get(process_set, [])
        plain: set[int] = set()
        if members and not self._joined:
            plain = self._cache.known(numbers) - self._changed
        self._repeats.add(rank, process_set, plain, now)
        if len(plain) < len(numbers):
            for number in numbers:
                if number not in plain:
                    self._add(rank, self._cache.request(number, rank), now)
        self._release_all(self._repeats.complete(process_set, members))

    def _release_all(self, numbers: Sequence[int]) -> None:
        """Add agreements that all ranks repeat to the ready ones."""
        self._cache.use(numbers)
        grouped = self._cache.grouped
        if grouped.isdisjoint(numbers):
            self._ready.extend(numbers)
            return
        for number in numbers:
            self._release(self._cache.agreement(number), number)

    def _expand(self, number: int) -> None:
        """Replace the repeats of a number by the requests that they stand for."""
        ranks, since = self._repeats.take(number)
        for rank in ranks:
            self._add(rank, self._cache.request(number, rank), since)

    def _add(self, rank: int, request: Request, now: float) -> None:
        pending = self._pending.setdefault(request.key, _Pending(now))
        pending.requests[rank] = request
        if request.kind == "join":
            self._joined.append(rank)
            self._expand_before(now)
            self._complete_others()
        self._complete(request.key)

    def _expand_before(self, moment: float) -> None:
        for number in self._repeats.waiting_before(moment):
            self._changed.add(number)
            self._expand(number)

    def take(self) -> Agreed | None:
        """Return the agreements completed since the last call; None if there are none."""
        if not self._ready:
            return None
        items, self._ready = self._ready, []
        dropped = self._cache.evict()
        for number in dropped:
            self._expand(number)
        self._changed.difference_update(dropped)
        return Agreed(items, dropped)

    @property
    def has_ready(self) -> bool:
        """Return whether `take` returns anything."""
        return bool(self._ready)

    def _complete_others(self) -> None:
        """Complete requests that wait for a joined rank, or whose process set is removed."""
        for key in list(self._pending):
            self._complete(key)

    def _complete(self, key: Key) -> None:
        pending = self._pending.get(key)
        if pending is None or self._missing(key):
            return
        self._forget(key)
        # Sorted by rank, so that error messages do not depend on the order of arrival.
        requests = dict(sorted(pending.requests.items()))
        agreement = self._agreement(key, requests)
        item: Agreement | int = agreement
        if not agreement.error and len(requests) == len(self.sets.get(key[0], ())):
            item = self._cache.add(agreement, requests)
        self._release(agreement, item)

    def _forget(self, key: Key) -> _Pending:
        number = self._cache.number(key)
        if number is not None:
            self._changed.discard(number)
        return self._pending.pop(key)

    def _release(self, agreement: Agreement, item: Agreement | int) -> None:
        """Add an agreement to the ready ones once its whole group is; a group fails together."""
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
            kept = not isinstance(ready, int) or self._cache.known([ready])
            whole = ready if kept else each
            self._ready.append(Agreement(each.request, error=errors[0]) if errors else whole)

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
                self._expand_before(math.inf)
                self._complete_others()
        return []

    def _add_set(self, ranks: list[int]) -> int:
        number, self._next_set = self._next_set, self._next_set + 1
        self.sets[number] = list(ranks)
        return number

    def _missing(self, key: Key) -> list[int]:
        """Return the ranks that have neither sent this request nor joined."""
        requests = self._pending[key].requests
        kinds = {request.kind for request in requests.values()}
        there = set(requests) if kinds == {"join"} else {*requests, *self._joined}
        return [rank for rank in self.sets.get(key[0], []) if rank not in there]

    # Requests that wait for too long

    def check_crossed(self, now: float) -> None:
        """Fail operations that ranks have requested in different process sets."""
        self._expand_before(now - CROSSED_SECONDS)
        for name, keys in list(self._names_in_several_sets(now)):
            ranks = {key[0]: sorted(self._pending[key].requests) for key in keys}
            lacking = {rank for key in keys for rank in self._missing(key)}
            if not lacking & {rank for there in ranks.values() for rank in there}:
                continue
            shown = ", ".join(f"ranks {there} use set {number}" for number, there in ranks.items())
            for key in keys:
                first = next(iter(self._forget(key).requests.values()))
                error = f"Mismatched process sets of '{name}': {shown}."
                self._ready.append(Agreement(first, error=error))

    def _names_in_several_sets(self, now: float) -> Iterator[tuple[str, list[Key]]]:
        by_name: dict[str, list[Key]] = {}
        for key, pending in self._pending.items():
            if now - pending.since > CROSSED_SECONDS:
                by_name.setdefault(key[1], []).append(key)
        yield from ((name, keys) for name, keys in by_name.items() if len(keys) > 1)

    def stalled(self, now: float, seconds: float) -> list[tuple[str, list[int]]]:
        """Return names that have waited for more than `seconds`, with the missing ranks."""
        self._expand_before(now - seconds)
        return [
            (key[1], self._missing(key))
            for key, pending in self._pending.items()
            if now - pending.since > seconds
        ]
