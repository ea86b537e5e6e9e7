"""Pure decisions about staleness and about the members of a synchronous round."""

from abc import ABC, abstractmethod
from collections.abc import Set
from typing import final

from flambeau.config.plural import number_of
from flambeau.errors import ConfigError


class StalenessPolicy(ABC):
    """Limit on how far workers may be apart when gradients are applied on arrival."""

    @abstractmethod
    def may_start(self, step: int, slowest: int) -> bool:
        """Return whether a worker that has finished `step` batches may start its next one.

        `slowest` is the number of batches that the slowest worker has finished.
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
        """Return the workers whose gradients make up the round, or None to wait for more."""
        return frozenset(arrived) if len(arrived) >= self._needed else None


@final
class Bounded(StalenessPolicy):
    """Gradients applied on arrival; no worker is more than `staleness` batches ahead."""

    def __init__(self, staleness: int) -> None:
        if staleness < 0:
            raise ConfigError(f"staleness={staleness}: give 0 (in step) or more batches")
        self._staleness = staleness

    def may_start(self, step: int, slowest: int) -> bool:
        """Return whether the slowest worker is at most `staleness` batches behind."""
        return step - slowest <= self._staleness


@final
class Asynchronous(StalenessPolicy):
    """Gradients applied on arrival, without waiting for other workers."""

    def may_start(self, step: int, slowest: int) -> bool:
        """Return True."""
        return True
