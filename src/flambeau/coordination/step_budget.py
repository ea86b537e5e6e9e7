"""Which asynchronous worker may make how many of the steps that are left, and none too many."""

from typing import final


@final
class StepBudget:
    """Steps that are handed out to workers: many at first, one by one in the end.

    What a worker was granted is its own until it has made the steps, is idle, or lost.
    """

    def __init__(self, steps: int, workers: int) -> None:
        self._free, self._workers = steps, workers
        self._granted: dict[int, int] = {}
        self._grown = False

    def grant(self, worker: int) -> int:
        """How many steps more a worker may make; 0 while it has enough, or none are left."""
        share = max(1, self._free // (2 * self._workers))
        own = self._granted.get(worker, 0)
        more = min(share - own, self._free) if 2 * own <= share else 0
        self._free -= more
        self._granted[worker] = own + more
        return more

    def made(self, worker: int, steps: int, new: int) -> None:
        """A worker has made steps; in the place of those that are not new others may be made."""
        self._granted[worker] = max(0, self._granted.get(worker, 0) - steps)
        self._give_back(steps - new)

    def take_back(self, worker: int) -> int:
        """How many steps a worker that is idle or lost had left; others may make them now."""
        left = self._granted.pop(worker, 0)
        self._give_back(left)
        return left

    def has_grown(self) -> bool:
        """Return whether steps came back since the last call, which any worker may be granted.

        Otherwise only a worker that has made steps, or has become busy, can be granted any.
        """
        grown, self._grown = self._grown, False
        return grown

    def _give_back(self, steps: int) -> None:
        self._free += steps
        self._grown = self._grown or steps > 0

    def is_spent(self, worker: int) -> bool:
        """Whether a worker can make no step, unless another leaves some over."""
        return not self._free and not self._granted.get(worker, 0)
