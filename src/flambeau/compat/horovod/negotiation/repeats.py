"""Requests that ranks repeat by the numbers of agreements, handled as sets of numbers."""

from collections.abc import Collection, Iterator, Sequence
from typing import final

Numbers = set[int]


@final
class Repeats:
    """The numbers that each rank of a process set has repeated and waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Numbers]] = {}
        self._since: dict[int, float] = {}

    def add(self, rank: int, process_set: int, numbers: Collection[int], now: float) -> None:
        """Record that a rank repeats these requests."""
        of_rank = self._waiting.setdefault(process_set, {}).setdefault(rank, set())
        of_rank.update(numbers)
        for number in numbers:
            self._since.setdefault(number, now)

    def complete(self, process_set: int, members: Sequence[int]) -> list[int]:
        """Remove and return the numbers that all of the ranks repeat, sorted."""
        waiting = self._waiting.get(process_set, {})
        if not waiting or len(waiting) < len(members):
            return []
        found = set.intersection(*waiting.values())
        for numbers in waiting.values():
            numbers -= found
        for number in found:
            del self._since[number]
        return sorted(found)

    def waiting_before(self, moment: float) -> list[int]:
        """Return the numbers that have waited since `moment` or earlier."""
        return [number for number, since in self._since.items() if since <= moment]

    def take(self, number: int) -> tuple[list[int], float]:
        """Remove a number; return the ranks that repeat it, and the time of the first repeat."""
        since = self._since.pop(number, None)
        return ([], 0.0) if since is None else (list(self._taken(number)), since)

    def _taken(self, number: int) -> Iterator[int]:
        for waiting in self._waiting.values():
            for rank, numbers in waiting.items():
                if number in numbers:
                    numbers.remove(number)
                    yield rank
