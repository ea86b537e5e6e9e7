"""Restarts that are decided, and wait for their starting point and the end of their delay."""

import math
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, final

from flambeau.coordination import failures
from flambeau.coordination.backoff import Backoff
from flambeau.coordination.failures import Failure
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.control.starting_points import StartingPoint, StartingPoints
from flambeau.driver.coordinators import Emit

#: Roles lost within this time after a first one are assumed to be lost for the same reason.
TOGETHER_SECONDS = 1.0


@dataclass(frozen=True)
class ComingStart:
    """A start at `due` (monotonic seconds) or later, once its starting point is known."""

    found: Future[StartingPoint]
    due: float

    def ready(self, now: float) -> bool:
        """Return whether it is due and its starting point is known."""
        return now >= self.due and self.found.done()

    @property
    def point(self) -> StartingPoint:
        """The starting point, once the start is ready."""
        return self.found.result()


@final
@dataclass(frozen=True)
class Replacement(ComingStart):
    """The start of a role in place of one that was lost by `failure`."""

    spec: RoleSpec
    failure: Failure


@final
class Restarts:
    """Planned starts of a generation or of single roles, with starting points and times.

    Times are seconds of a monotonic clock, given by the caller.
    """

    def __init__(self, points: StartingPoints, limit: int, emit: Emit) -> None:
        self._points, self._limit, self._emit = points, limit, emit
        self._backoff = Backoff()
        self._due = 0.0
        self._generation: ComingStart | None = None
        self._roles: list[Replacement] = []
        #: Roles that the last restart replaces, and until when other roles become part of it.
        self._replaced: set[tuple[Role, int]] = set()
        self._open_until = -math.inf
        self.count = 0

    @property
    def due(self) -> float:
        """The time when the delay of the last restart is over."""
        return self._due

    @property
    def left(self) -> int:
        """The number of restarts that are still allowed."""
        return self._limit - self.count

    def allow(self, failure: Failure) -> bool:
        """Return whether to restart after a failure."""
        return failures.decide(failure, self.count, self._limit) is failures.Verdict.RESTART

    def allow_role(self, failure: Failure, now: float) -> bool:
        """Return whether to replace a single role; with others, it may be counted already."""
        counted = self.count - 1 if self.is_counted(failure.spec, now) else self.count
        return failures.decide(failure, counted, self._limit) is failures.Verdict.RESTART

    def decide(self, generation: int, reason: str, now: float, **who: Any) -> None:
        """Count and report a restart, and set the delay of the starts that are planned next."""
        self.count += 1
        delay = self._backoff.next(now)
        self._due = now + delay
        wait = {"delay": delay} if delay else {}
        self._emit("restart", **who, generation=generation, reason=reason, **wait)

    def take_back(self) -> None:
        """Uncount a restart that has become part of another one."""
        self.count -= 1

    @property
    def can_restore_servers(self) -> bool:
        """Return whether there is a checkpoint from which a new server can be restored."""
        return self._points.exist

    def plan_generation(self, *, first: bool) -> None:
        """Plan to start all roles once their starting point is known."""
        self._points.release()  # no role is left that could start from an earlier choice
        self._roles.clear()
        self._open_until = -math.inf
        self._generation = ComingStart(self._points.choose(again=not first), self._due)

    def replace(self, failure: Failure, spec: RoleSpec, now: float) -> None:
        """Plan to start `spec` in place of a role that was lost alone or together with others."""
        if not self.is_counted(spec, now):
            who = {"rank": spec.rank, "role": spec.kind}
            self.decide(spec.generation, failure.message, now, **who)
            self._replaced, self._open_until = set(), now + TOGETHER_SECONDS
        self._replaced.add((spec.role, spec.rank))
        self.plan_role(spec, failure)

    def is_counted(self, spec: RoleSpec, now: float) -> bool:
        """Return whether a lost role is part of the last restart, which replaces each role once."""
        return now <= self._open_until and (spec.role, spec.rank) not in self._replaced

    def absorb(self, lost: Iterable[RoleSpec], now: float) -> None:
        """Uncount the last restart if it replaces one of these roles, whose agent is lost now."""
        replaced = any((spec.role, spec.rank) in self._replaced for spec in lost)
        if replaced and now <= self._open_until:
            self.take_back()
            self._open_until = -math.inf

    def plan_role(self, spec: RoleSpec, failure: Failure) -> None:
        """Plan to start a role in place of a lost one, after `decide`."""
        found = self._points.choose(again=True)
        self._roles.append(Replacement(found, self._due, spec, failure))

    def withdraw(self, agent: int) -> None:
        """Cancel the starts of roles on an agent that is gone."""
        self._roles = [item for item in self._roles if item.spec.node != agent]

    def generation_is_due(self, now: float) -> bool:
        """Return whether it is time to start the planned generation."""
        return self._generation is not None and self._generation.ready(now)

    def take_generation(self) -> StartingPoint:
        """Return the starting point of the generation that is due, and remove it from the plan."""
        assert self._generation is not None
        point, self._generation = self._generation.point, None
        self._warn(point)
        return point

    def roles_due(self, now: float) -> list[Replacement]:
        """Return the roles that are due, and remove them from the plan."""
        ready = [item for item in self._roles if item.ready(now)]
        self._roles = [item for item in self._roles if item not in ready]
        for item in ready:
            self._warn(item.point)
        return ready

    def _warn(self, point: StartingPoint) -> None:
        for text in point.skipped:
            self._emit("warning", text=text)

    @property
    def waiting(self) -> list[RoleSpec]:
        """The planned roles that have not been started yet."""
        return [item.spec for item in self._roles]

    def cancel(self) -> None:
        """Cancel the starts of all single roles."""
        self._roles.clear()

    def close(self) -> None:
        """Stop the search for starting points."""
        self._points.close()
