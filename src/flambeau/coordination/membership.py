"""Roles that take part in a generation, and which of them have become silent."""

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.coordination.protocol import RoleJoined
from flambeau.coordination.roles import RoleSpec

START_SECONDS = 120.0


@dataclass
class Member:
    """A role of the current generation, as seen by the coordinator."""

    spec: RoleSpec
    started: float
    last_seen: float
    peer: bytes | None = None
    joined: RoleJoined | None = None
    exited: bool = False
    done: bool = False


class Membership:
    """The roles of one generation. Times are seconds of a monotonic clock, passed by the caller."""

    def __init__(self, specs: Iterable[RoleSpec], now: float) -> None:
        self._members = {spec: Member(spec, started=now, last_seen=now) for spec in specs}
        self._group = self._with_ranks()

    def __getitem__(self, spec: RoleSpec) -> Member:
        return self._members[spec]

    def __contains__(self, spec: RoleSpec) -> bool:
        return spec in self._members

    def all(self) -> list[Member]:
        """Return all members, by rank."""
        return list(self._members.values())

    def group(self) -> list[Member]:
        """Return the members with a rank: workers, but not servers or the evaluator."""
        return list(self._group)

    def joined(self, peer: bytes, message: RoleJoined, now: float) -> None:
        """Record that a role has started, and the peer address of its connection."""
        member = self._members[message.spec]
        member.peer, member.joined, member.last_seen = peer, message, now

    def seen(self, spec: RoleSpec, now: float) -> None:
        """Record a heartbeat."""
        self._members[spec].last_seen = now

    def forgive(self, seconds: float, now: float) -> None:
        """Do not count `seconds` in which the coordinator itself did not run."""
        for member in self.all():
            member.last_seen = min(member.last_seen + seconds, now)

    def of_agent(self, agent: int) -> list[Member]:
        """Return the roles that an agent has started, or will start."""
        return [member for member in self.all() if member.spec.node == agent]

    def complete(self) -> bool:
        """Return whether all roles with a rank have joined."""
        return all(member.joined for member in self._group)

    def replace(self, lost: RoleSpec, spec: RoleSpec, now: float) -> None:
        """Replace a lost role by another process; the order of members does not change."""
        self._members = {
            (spec if key == lost else key): (Member(spec, now, now) if key == lost else member)
            for key, member in self._members.items()
        }
        self._group = self._with_ranks()

    def remove(self, lost: RoleSpec) -> None:
        """Remove a lost role that will not be replaced."""
        del self._members[lost]
        self._group = self._with_ranks()

    def silent(self, now: float, timeout: float) -> list[Member]:
        """Return members that should be alive but have sent nothing for `timeout` seconds.

        A member that is still starting gets more time, since Python and its libraries may load
        slowly.
        """
        return [
            member
            for member in self.all()
            if not member.exited
            and now - member.last_seen > (timeout if member.joined else max(timeout, START_SECONDS))
        ]

    def all_exited(self) -> bool:
        """Return whether all processes of this generation have exited."""
        return all(member.exited for member in self.all())

    def group_done(self) -> bool:
        """Return whether all workers have reported that they are finished."""
        return all(member.done for member in self._group)

    def _with_ranks(self) -> list[Member]:
        return [member for member in self.all() if member.spec.role.in_group]
