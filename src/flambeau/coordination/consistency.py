"""How far workers may run apart, and whose gradients make up a round: pure decisions."""

from abc import ABC, abstractmethod
from collections.abc import Set
from typing import final

from flambeau.config.plural import number_of
from flambeau.errors import ConfigError


class StalenessPolicy(ABC):
    """How far a worker may be ahead of the slowest, where gradients are applied as they come."""

    @abstractmethod
    def may_start(self, step: int, slowest: int) -> bool:
        """Return whether a worker that has finished `step` batches may start its next one.

        `slowest` is how many batches the slowest worker has finished.
        """


@final
class Synchronous:
    """One update from all workers at each step, or from all but the `backup_workers` slowest."""

    def __init__(self, workers: int, backup_workers: int = 0) -> None:
        if not 0 <= backup_workers < workers:
            raise ConfigError(
                f"backup_workers={backup_workers} with {number_of(workers, 'worker')}: give 0 to "
                f"{workers - 1}, so that a round has at least one member"
            )
        self._needed = workers - backup_workers

    def members(self, arrived: Set[int]) -> frozenset[int] | None:
        """Return whose gradients are applied together now that these have arrived; None: wait."""
        return frozenset(arrived) if len(arrived) >= self._needed else None


@final
class Bounded(StalenessPolicy):
    """Gradients are applied as they come, but nobody is more than `staleness` batches ahead."""

    def __init__(self, staleness: int) -> None:
        if staleness < 0:
            raise ConfigError(f"staleness={staleness}: give 0 (in step) or more batches")
        self._staleness = staleness

    def may_start(self, step: int, slowest: int) -> bool:
        """Whether the slowest is near enough."""
        return step - slowest <= self._staleness


@final
class Asynchronous(StalenessPolicy):
    """Gradients are applied as they come, and nobody waits."""

    def may_start(self, step: int, slowest: int) -> bool:
        """Always."""
        return True
