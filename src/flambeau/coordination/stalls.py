"""Pure decisions about workers that are alive but make no progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from flambeau.coordination.activity import Doing
from flambeau.coordination.protocol import Heartbeat
from flambeau.coordination.roles import RoleSpec


@dataclass(frozen=True)
class Stall:
    """Roles that make no progress: others are `waiting` for them, or all for each other."""

    behind: tuple[RoleSpec, ...]
    waiting: tuple[RoleSpec, ...] = ()
    together: bool = False


@dataclass
class _Seen:
    marks: int
    doing: Doing
    #: Start of the period in which it has been working without a mark.
    since: float


@final
class Stalls:
    """Monitor of the progress marks (steps, batches of an evaluation) in heartbeats.

    A worker that works for `timeout` seconds without a mark is stuck. If all of them wait that
    long, they are in a deadlock. There is no limit before a worker's first mark, since it compiles
    models and opens data then. Times are seconds of a monotonic clock.
    """

    def __init__(self, timeout: float | None, now: float) -> None:
        self._timeout = timeout
        self._seen: dict[RoleSpec, _Seen] = {}
        self._last_progress = now

    def beat(self, message: Heartbeat, now: float) -> None:
        """Record a heartbeat."""
        seen = self._seen.setdefault(message.spec, _Seen(0, message.doing, now))
        moved = message.marks != seen.marks
        if moved or message.doing is not Doing.WORKING:
            seen.since = now
        if moved or message.doing is Doing.STORING:
            self._last_progress = now
        seen.marks, seen.doing = message.marks, message.doing

    def find(self, workers: Sequence[RoleSpec], now: float) -> Stall | None:
        """Return which of these unfinished workers are stuck, or None."""
        known = {spec: self._seen[spec] for spec in workers if spec in self._seen}
        if self._timeout is None or not known:
            return None
        late = now - self._timeout
        waiting = tuple(spec for spec, seen in known.items() if seen.doing is Doing.WAITING)
        begun = {spec: seen for spec, seen in known.items() if seen.marks}
        behind = tuple(
            spec
            for spec, seen in begun.items()
            if seen.doing is Doing.WORKING and seen.since < late
        )
        if behind:
            return Stall(behind, tuple(spec for spec in waiting if spec not in behind))
        if len(begun) == len(workers) and self._last_progress < late:
            least = min(seen.marks for seen in begun.values())
            behind = tuple(spec for spec, seen in begun.items() if seen.marks == least)
            return Stall(behind, together=True)
        return None
