"""Distribution of the remaining steps over asynchronous workers, without exceeding the total."""

from typing import final


@final
class StepBudget:
    """Steps that are granted to workers: many at first, one by one near the end.

    A worker keeps its granted steps until it has made them, is idle or is lost.
    """

    def __init__(self, steps: int, workers: int) -> None:
        self._free, self._workers = steps, workers
        self._granted: dict[int, int] = {}
        self._grown = False

    def grant(self, worker: int) -> int:
        """Grant a worker more steps; return how many: 0 if it has enough or none are left."""
        share = max(1, self._free // (2 * self._workers))
        own = self._granted.get(worker, 0)
        more = min(share - own, self._free) if 2 * own <= share else 0
        self._free -= more
        self._granted[worker] = own + more
        return more

    def made(self, worker: int, steps: int, new: int) -> None:
        """Record that a worker has made steps; those that are not `new` may be made again."""
        self._granted[worker] = max(0, self._granted.get(worker, 0) - steps)
        self._give_back(steps - new)

    def take_back(self, worker: int) -> int:
        """Return an idle or lost worker's remaining steps to the budget; return their number."""
        left = self._granted.pop(worker, 0)
        self._give_back(left)
        return left

    def has_grown(self) -> bool:
        """Return whether steps that any worker may be granted were returned since the last call.

        Otherwise only a worker that has made steps, or has become busy, can be granted any.
        """
        grown, self._grown = self._grown, False
        return grown

    def _give_back(self, steps: int) -> None:
        self._free += steps
        self._grown = self._grown or steps > 0

    def is_spent(self, worker: int) -> bool:
        """Return whether a worker can make no more steps, unless another one returns some."""
        return not self._free and not self._granted.get(worker, 0)
