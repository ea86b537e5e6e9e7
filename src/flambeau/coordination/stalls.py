"""Pure decisions about workers that are alive and make no progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from flambeau.coordination.activity import Doing
from flambeau.coordination.protocol import Heartbeat
from flambeau.coordination.roles import RoleSpec


@dataclass(frozen=True)
class Stall:
    """Roles that make no progress. Others may be `waiting` for them, or they for each other."""

    behind: tuple[RoleSpec, ...]
    waiting: tuple[RoleSpec, ...] = ()
    together: bool = False


@dataclass
class _Seen:
    marks: int
    doing: Doing
    #: Since when it has worked without a mark.
    since: float


@final
class Stalls:
    """Watches the marks of progress (steps, batches of an evaluation) in heartbeats.

    A worker that works for `timeout` seconds without a mark is stuck; if all of them wait for so
    long, they are stuck together. Before its first mark a worker is given any time, since models
    are compiled and data is opened then. Times are seconds of a monotonic clock.
    """

    def __init__(self, timeout: float | None, now: float) -> None:
        self._timeout = timeout
        self._seen: dict[RoleSpec, _Seen] = {}
        self._last_progress = now

    def beat(self, message: Heartbeat, now: float) -> None:
        """A role shows what it is doing."""
        seen = self._seen.setdefault(message.spec, _Seen(0, message.doing, now))
        moved = message.marks != seen.marks
        if moved or message.doing is not Doing.WORKING:
            seen.since = now
        if moved or message.doing is Doing.STORING:
            self._last_progress = now
        seen.marks, seen.doing = message.marks, message.doing

    def find(self, workers: Sequence[RoleSpec], now: float) -> Stall | None:
        """Whether some of these workers, which are not done, are stuck."""
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
