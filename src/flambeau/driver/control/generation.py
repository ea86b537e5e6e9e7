"""One generation of roles: who is there, where servers are, and what each role starts from."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from flambeau.coordination.membership import Membership
from flambeau.coordination.protocol import (
    Begin,
    Messages,
    Restore,
    RoleJoined,
    ServerReady,
    Servers,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.messaging import Server


@final
class Generation:
    """Brings the roles of a generation together, and lets workers begin when all are there.

    `began` is called with each worker that has been sent its `Begin`.
    """

    def __init__(
        self,
        number: int,
        specs: Iterable[RoleSpec],
        checkpoint: str | None,
        server: Server[Messages],
        began: Callable[[RoleSpec], None],
        now: float,
    ) -> None:
        self.number = number
        self.members = Membership(specs, now)
        self._checkpoint, self._server, self._began = checkpoint, server, began
        #: What roles that took a lost one's place start from.
        self._newer: dict[RoleSpec, str | None] = {}
        self._servers = sum(m.spec.role is Role.SERVER for m in self.members.all())
        self._addresses: dict[int, str] = {}
        #: Whether workers have begun, and whether they are done and the others may end.
        self.begun = self.released = False

    def joined(self, peer: bytes, message: RoleJoined, now: float) -> None:
        """A role is up: send it what it starts from, as soon as it can use it."""
        spec = message.spec
        self.members.joined(peer, message, now)
        if spec.role is Role.SERVER:
            self.send(spec, Restore(self._start_of(spec)))
        elif spec.role.in_group:
            self._begin_if_complete(spec)

    def server_ready(self, message: ServerReady) -> None:
        """A server takes requests; it may be one in a lost one's place."""
        self._addresses[message.spec.rank] = message.address
        if self.begun:
            for member in self.members.group():
                self.send(member.spec, Servers(self._server_list()))
        else:
            self._begin_if_complete()

    def replace(self, lost: RoleSpec, spec: RoleSpec, now: float) -> None:
        """A role is lost, and `spec` will take its place.

        A lost server's address stays until there is a new one: lists of servers have no gaps.
        """
        self.members.replace(lost, spec, now)

    def starts(self, spec: RoleSpec, checkpoint: str | None) -> None:
        """A role in a lost one's place is being started."""
        self._newer[spec] = checkpoint

    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """Send to a role; to one that is not there (yet or any more), nothing is sent."""
        peer = self.members[spec].peer if spec in self.members else None
        if peer is not None:
            self._server.send(peer, message, buffers)

    def roles(self, role: Role) -> list[RoleSpec]:
        """The roles of one kind that have joined."""
        members = self.members.all()
        return [m.spec for m in members if m.spec.role is role and m.peer is not None]

    def _begin_if_complete(self, newcomer: RoleSpec | None = None) -> None:
        """Let all workers begin when all roles are there; later, one that is new."""
        ready = self.members.complete() and len(self._addresses) == self._servers
        beginners = [newcomer] if self.begun and newcomer is not None else []
        if not self.begun and ready:
            self.begun = True
            beginners = [member.spec for member in self.members.group()]
        for spec in beginners:
            self.send(spec, Begin(self._server_list(), self._start_of(spec)))
            self._began(spec)

    def _start_of(self, spec: RoleSpec) -> str | None:
        return self._newer.get(spec, self._checkpoint)

    def _server_list(self) -> list[str]:
        return [self._addresses[shard] for shard in sorted(self._addresses)]
