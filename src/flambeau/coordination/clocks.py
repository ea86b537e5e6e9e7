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

    def __getitem__(self, worker: int) -> int:
        return self._clocks[worker]

    def __contains__(self, worker: int) -> bool:
        return worker in self._clocks

    def join(self, worker: int) -> bool:
        """Add a worker at the slowest clock: it neither delays others nor is ahead of them."""
        self._clocks.setdefault(worker, self.slowest)
        return False

    def tick(self, worker: int) -> bool:
        """A worker has finished a batch."""
        if worker in self._clocks:
            self._clocks[worker] += 1
        return self._raise_slowest_clock()

    def leave(self, worker: int) -> bool:
        """A worker is gone or idle: the others need not wait for it."""
        self._clocks.pop(worker, None)
        return self._raise_slowest_clock()

    def _raise_slowest_clock(self) -> bool:
        before, self.slowest = self.slowest, min(self._clocks.values(), default=self.slowest)
        return self.slowest != before
