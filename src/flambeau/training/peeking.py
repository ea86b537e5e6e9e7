"""An iterator whose next item can be seen before it is taken."""

from collections.abc import Iterator
from typing import Generic, TypeVar, final

Item = TypeVar("Item")


@final
class Peeking(Iterator[Item], Generic[Item]):
    """The items of another iterator."""

    def __init__(self, source: Iterator[Item]) -> None:
        self._source = source
        self._waiting: list[Item] = []

    def peek(self) -> Item | None:
        """The item that `next` will give, or None at the end."""
        if not self._waiting:
            self._waiting.extend(item for item in [next(self._source, None)] if item is not None)
        return self._waiting[0] if self._waiting else None

    def __next__(self) -> Item:
        return self._waiting.pop() if self._waiting else next(self._source)
