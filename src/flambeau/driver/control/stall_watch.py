"""Detection of roles that make no progress or send no heartbeat."""

from collections.abc import Callable
from typing import final

from flambeau.config import Recovery
from flambeau.coordination import failures
from flambeau.coordination.failures import Failure
from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import Heartbeat
from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.stalls import Stalls

#: The time for stacks to be printed before their process is ended.
STACK_SECONDS = 2.0


@final
class StallWatch:
    """A detector of silent or stuck roles, which prints their stacks before they fail.

    `show_stacks` is called with a role and the message of its failure.
    """

    def __init__(
        self, recovery: Recovery, show_stacks: Callable[[RoleSpec, str], None], now: float
    ) -> None:
        self._recovery, self._show_stacks = recovery, show_stacks
        self.begin(now)

    def begin(self, now: float) -> None:
        """Reset all state for a new generation."""
        self._stalls = Stalls(self._recovery.progress_timeout, now)
        self._suspects: dict[RoleSpec, float] = {}

    def beat(self, message: Heartbeat, now: float) -> None:
        """Record a role's heartbeat, with what it is doing."""
        self._stalls.beat(message, now)

    def failures(self, members: Membership, now: float) -> list[Failure]:
        """Return the failures of silent or stuck roles whose stacks had time to be printed."""
        found = {failure.spec: failure for failure in self._find(members, now)}
        new = [failure for spec, failure in found.items() if spec not in self._suspects]
        self._suspects = {spec: self._suspects.get(spec, now) for spec in found}
        self._request_stacks(members, new)
        late = now - STACK_SECONDS
        return [failure for spec, failure in found.items() if self._suspects[spec] <= late]

    def _find(self, members: Membership, now: float) -> list[Failure]:
        timeout = self._recovery.heartbeat_timeout
        silent = [failures.of_silence(m.spec, timeout) for m in members.silent(now, timeout)]
        if silent:
            return silent  # other roles may be waiting for these
        working = [m.spec for m in members.group() if not (m.done or m.exited)]
        stall = self._stalls.find(working, now)
        if stall is None or self._recovery.progress_timeout is None:
            return []
        return failures.of_stall(stall, self._recovery.progress_timeout)

    def _request_stacks(self, members: Membership, found: list[Failure]) -> None:
        for failure in found:
            if failure.cause is failures.Cause.DEADLOCK:
                # The cause of a deadlock may be in any role.
                for member in members.all():
                    if member.joined and not member.exited:
                        self._show_stacks(member.spec, failure.message)
                return
            self._show_stacks(failure.spec, failure.message)
