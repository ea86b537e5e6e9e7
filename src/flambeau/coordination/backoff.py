"""How long to wait before a restart."""

from typing import final

FIRST_SECONDS = 1.0
LIMIT_SECONDS = 60.0
#: A job that has run for so long after a restart has recovered from what caused it.
RECOVERED_SECONDS = 120.0


@final
class Backoff:
    """Delays between restarts: none before the first, then each twice as long as the one before.

    Times are seconds of a monotonic clock, given by the caller.
    """

    def __init__(self) -> None:
        self._delay = 0.0
        self._started: float | None = None

    def next(self, now: float) -> float:
        """The delay of a restart that is decided on now."""
        if self._started is None or now - self._started > RECOVERED_SECONDS:
            self._delay = 0.0
        else:
            self._delay = min(max(FIRST_SECONDS, 2 * self._delay), LIMIT_SECONDS)
        self._started = now + self._delay
        return self._delay
