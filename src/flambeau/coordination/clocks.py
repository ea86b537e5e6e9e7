"""Number of batches that each worker has finished, and the slowest clock."""

from typing import final


@final
class Clocks:
    """One clock per active worker. `slowest`, the minimum of them, never decreases.

    A worker that has nothing to do leaves, so that no other worker waits for it, and joins again
    later. Every method returns whether `slowest` has changed. Messages may be late or duplicated:
    ticks of a worker that has left are ignored, and to join or leave twice is the same as once.
    """

    def __init__(self, slowest: int = 0) -> None:
        self.slowest = slowest
        self._clocks: dict[int, int] = {}
        #: Number of workers at the slowest clock, which changes when the last of them advances.
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
        """Record that a worker has finished batches."""
        clock = self._clocks.get(worker)
        if clock is None or not batches:
            return False
        self._clocks[worker] = clock + batches
        return self._moved_from(clock)

    def leave(self, worker: int) -> bool:
        """Remove a worker that is lost or idle, so that the others do not wait for it."""
        clock = self._clocks.pop(worker, None)
        return clock is not None and self._moved_from(clock)

    def _moved_from(self, clock: int) -> bool:
        self._slowest_workers -= clock == self.slowest
        if self._slowest_workers:
            return False
        before, self.slowest = self.slowest, min(self._clocks.values(), default=self.slowest)
        self._slowest_workers = sum(clock == self.slowest for clock in self._clocks.values())
        return self.slowest != before
