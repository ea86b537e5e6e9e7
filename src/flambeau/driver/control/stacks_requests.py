"""Requests for the Python stacks of a job's processes: a file in the run directory."""

from collections.abc import Callable
from pathlib import Path
from typing import final

from flambeau.coordination.membership import Membership
from flambeau.coordination.roles import RoleSpec

#: Seconds between two checks.
_LOOK_SECONDS = 0.5


@final
class StacksRequests:
    """A handler of requests: it removes the file and prints the stacks of all processes.

    `show_stacks` is called with each role and the reason.
    """

    def __init__(self, path: Path | None, show_stacks: Callable[[RoleSpec, str], None]) -> None:
        self._path, self._show_stacks = path, show_stacks
        self._due = 0.0

    def answer(self, members: Membership, now: float) -> None:
        """Check for a request, if a check is due, and answer it."""
        if self._path is None or now < self._due:
            return
        self._due = now + _LOOK_SECONDS
        if self._path.exists():
            for member in members.all():
                if member.joined and not member.exited:
                    self._show_stacks(member.spec, "flambeau stacks was called")
            self._path.unlink(missing_ok=True)
