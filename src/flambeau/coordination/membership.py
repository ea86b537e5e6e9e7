"""Who takes part in a generation, and who has fallen silent."""

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.coordination.protocol import RoleJoined
from flambeau.coordination.roles import RoleSpec

START_SECONDS = 120.0


@dataclass
class Member:
    """A role of the current generation, as the coordinator knows it."""

    spec: RoleSpec
    started: float
    last_seen: float
    peer: bytes | None = None
    joined: RoleJoined | None = None
    exited: bool = False
    done: bool = False


class Membership:
    """The roles of one generation. Times are seconds of a monotonic clock, given by the caller."""

    def __init__(self, specs: Iterable[RoleSpec], now: float) -> None:
        self._members = {spec: Member(spec, started=now, last_seen=now) for spec in specs}
        self._group = self._with_ranks()

    def __getitem__(self, spec: RoleSpec) -> Member:
        return self._members[spec]

    def __contains__(self, spec: RoleSpec) -> bool:
        return spec in self._members

    def all(self) -> list[Member]:
        """Every member, by rank."""
        return list(self._members.values())

    def group(self) -> list[Member]:
        """The members with a rank: workers, not the evaluator."""
        return list(self._group)

    def joined(self, peer: bytes, message: RoleJoined, now: float) -> None:
        """Note that a role is up and where it can be reached."""
        member = self._members[message.spec]
        member.peer, member.joined, member.last_seen = peer, message, now

    def seen(self, spec: RoleSpec, now: float) -> None:
        """Note a sign of life."""
        self._members[spec].last_seen = now

    def forgive(self, seconds: float, now: float) -> None:
        """Do not count time in which the coordinator itself did not run."""
        for member in self.all():
            member.last_seen = min(member.last_seen + seconds, now)

    def of_agent(self, agent: int) -> list[Member]:
        """Return the roles that an agent has started, or will start."""
        return [member for member in self.all() if member.spec.node == agent]

    def complete(self) -> bool:
        """Whether every role with a rank has joined."""
        return all(member.joined for member in self._group)

    def replace(self, lost: RoleSpec, spec: RoleSpec, now: float) -> None:
        """Another process takes the place of a lost one, in the same order."""
        self._members = {
            (spec if key == lost else key): (Member(spec, now, now) if key == lost else member)
            for key, member in self._members.items()
        }
        self._group = self._with_ranks()

    def silent(self, now: float, timeout: float) -> list[Member]:
        """Members that should be alive and have not been heard of for `timeout` seconds.

        One that is still starting gets more time: Python and its libraries may load slowly.
        """
        return [
            member
            for member in self.all()
            if not member.exited
            and now - member.last_seen > (timeout if member.joined else max(timeout, START_SECONDS))
        ]

    def all_exited(self) -> bool:
        """Whether no process of this generation is left."""
        return all(member.exited for member in self.all())

    def group_done(self) -> bool:
        """Whether all workers have said that they are finished."""
        return all(member.done for member in self._group)

    def _with_ranks(self) -> list[Member]:
        return [member for member in self.all() if member.spec.role.in_group]
