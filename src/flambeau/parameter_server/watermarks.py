"""A record of applied gradients of asynchronous workers, so that none is applied twice."""

from typing import Any, final


@final
class Watermarks:
    """Next batch to apply, for each task of the last two epochs.

    A task's batches arrive in order, whichever workers send them. Gradients of older epochs are
    refused, so memory is bounded by the tasks of two epochs.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._epoch = 0

    def accept(self, epoch: int, task: int, batch: int) -> bool:
        """Record a gradient; return whether it is new."""
        if epoch < self._epoch - 1 or batch < self._next.get((epoch, task), 0):
            return False
        if epoch > self._epoch:
            self._epoch = epoch
            self._next = {key: n for key, n in self._next.items() if key[0] >= epoch - 1}
        self._next[epoch, task] = batch + 1
        return True

    def dump(self) -> list[list[int]]:
        """Return the watermarks as plain values, for a checkpoint."""
        return [[epoch, task, batch] for (epoch, task), batch in self._next.items()]

    def load(self, dumps: list[Any]) -> None:
        """Restore the watermarks of one or more shards; only batches applied by all count."""
        marks = [{(epoch, task): batch for epoch, task, batch in dump} for dump in dumps]
        keys = set.intersection(*(set(mark) for mark in marks)) if marks else set()
        self._next = {key: min(mark[key] for mark in marks) for key in keys}
        self._epoch = max((epoch for epoch, _ in self._next), default=0)
