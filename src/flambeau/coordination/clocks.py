"""How many batches each worker has finished, and the slowest of them."""

from typing import final


@final
class Clocks:
    """One clock per active worker. `slowest`, the least of them, never goes back.

    Workers that have nothing to do leave, so that nobody waits for them, and join again. Every
    method says whether it changed. Messages may come late or twice: ticks of a worker that
    has left count for nothing, and joining or leaving twice is the same as once.
    """

    def __init__(self, slowest: int = 0) -> None:
        self.slowest = slowest
        self._clocks: dict[int, int] = {}
        #: How many workers are at the slowest clock: it changes when the last of them moves.
        self._slowest_workers = 0

    def __getitem__(self, worker: int) -> int:
        return self._clocks[worker]

    def __contains__(self, worker: int) -> bool:
        return worker in self._clocks

    def join(self, worker: int) -> bool:
        """Add a worker at the slowest clock: it neither delays others nor is ahead of them."""
        if worker not in self._clocks:
            self._clocks[worker] = self.slowest
            self._slowest_workers += 1
        return False

    def tick(self, worker: int, batches: int = 1) -> bool:
        """A worker has finished batches."""
        clock = self._clocks.get(worker)
        if clock is None or not batches:
            return False
        self._clocks[worker] = clock + batches
        return self._moved_from(clock)

    def leave(self, worker: int) -> bool:
        """A worker is gone or idle: the others need not wait for it."""
        clock = self._clocks.pop(worker, None)
        return clock is not None and self._moved_from(clock)

    def _moved_from(self, clock: int) -> bool:
        self._slowest_workers -= clock == self.slowest
        if self._slowest_workers:
            return False
        before, self.slowest = self.slowest, min(self._clocks.values(), default=self.slowest)
        self._slowest_workers = sum(clock == self.slowest for clock in self._clocks.values())
        return self.slowest != before
