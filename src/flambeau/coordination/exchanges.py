"""Contributions of asynchronous workers to exchanges at a sync point."""

from collections.abc import Collection
from typing import final


@final
class Exchanges:
    """Parts that workers contribute, by exchange. An answered exchange does not change.

    A worker that replaces another one and repeats its exchanges therefore gets the same answers.
    """

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, bytes]] = {}
        self._answered: set[str] = set()

    def add(self, key: str, rank: int, data: bytes) -> None:
        """Record a worker's part of an exchange."""
        self._parts.setdefault(key, {})[rank] = data

    def is_answered(self, key: str) -> bool:
        """Return whether an exchange is complete and its parts were sent to the workers."""
        return key in self._answered

    def take_complete(self, ranks: Collection[int]) -> list[str]:
        """Return the exchanges to which all these workers have contributed, each once."""
        keys = [
            key
            for key, parts in self._parts.items()
            if key not in self._answered and parts.keys() >= set(ranks)
        ]
        self._answered.update(keys)
        return keys

    def parts(self, key: str) -> list[bytes]:
        """Return the parts of an exchange, by rank."""
        parts = self._parts[key]
        return [parts[rank] for rank in sorted(parts)]
