"""Delay before a restart."""

from typing import final

FIRST_SECONDS = 1.0
LIMIT_SECONDS = 60.0
#: A job that has run this long after a restart has recovered from the failure.
RECOVERED_SECONDS = 120.0


@final
class Backoff:
    """Delays between restarts: none before the first, then each twice as long as the previous one.

    Times are seconds of a monotonic clock, passed by the caller.
    """

    def __init__(self) -> None:
        self._delay = 0.0
        self._started: float | None = None

    def next(self, now: float) -> float:
        """Return the delay in seconds of a restart that is decided at `now`."""
        if self._started is None or now - self._started > RECOVERED_SECONDS:
            self._delay = 0.0
        else:
            self._delay = min(max(FIRST_SECONDS, 2 * self._delay), LIMIT_SECONDS)
        self._started = now + self._delay
        return self._delay
