"""Which gradients of asynchronous workers have been applied, so that none is applied twice."""

from typing import Any, final


@final
class Watermarks:
    """For each task of the last epochs, the next batch to be applied.

    A task's batches come in order, whoever sends them. Gradients of epochs that are long over are
    refused, so memory is bounded by the tasks of two epochs.
    """

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._epoch = 0

    def accept(self, epoch: int, task: int, batch: int) -> bool:
        """Whether this gradient is new; from now on it is not."""
        if epoch < self._epoch - 1 or batch < self._next.get((epoch, task), 0):
            return False
        if epoch > self._epoch:
            self._epoch = epoch
            self._next = {key: n for key, n in self._next.items() if key[0] >= epoch - 1}
        self._next[epoch, task] = batch + 1
        return True

    def dump(self) -> list[list[int]]:
        """As plain values, for a checkpoint."""
        return [[epoch, task, batch] for (epoch, task), batch in self._next.items()]

    def load(self, dumps: list[Any]) -> None:
        """Go on from the marks of one or more shards: what one of them has not got is missing."""
        marks = [{(epoch, task): batch for epoch, task, batch in dump} for dump in dumps]
        keys = set.intersection(*(set(mark) for mark in marks)) if marks else set()
        self._next = {key: min(mark[key] for mark in marks) for key in keys}
        self._epoch = max((epoch for epoch, _ in self._next), default=0)
