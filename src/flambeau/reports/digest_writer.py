"""Digests of a run's event log, so that a long run opens quickly.

The reader of the log is imported when the first digest is written: a job starts without numpy.
"""

from typing import TYPE_CHECKING, final

from flambeau.checkpoint import RunDirectory
from flambeau.observe import Event, Observer

if TYPE_CHECKING:
    from flambeau.reports.history import History

#: Events between two digests; reading them takes about a tenth of a second.
EVENTS_PER_DIGEST = 50_000


@final
class DigestWriter(Observer):
    """A writer of digests of a run's log at regular intervals."""

    def __init__(self, run: RunDirectory, every: int = EVENTS_PER_DIGEST) -> None:
        self._run, self._every = run, every
        self._history: History | None = None
        self._events = 0

    def observe(self, event: Event) -> None:
        """Count the event. The log must already contain it."""
        self._events += 1
        if self._events % self._every == 0:
            self._write()

    def close(self) -> None:
        """Do nothing: few events follow the last digest."""

    def _write(self) -> None:
        from flambeau.reports.reading import read_history, read_on, write_digest

        # Read from the log and not taken from the event: other processes write to the log, too.
        if self._history is None:
            self._history = read_history(self._run)
        else:
            read_on(self._history, self._run)
        write_digest(self._run, self._history)
