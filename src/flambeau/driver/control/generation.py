"""One generation of roles: its members, the servers' addresses, and each role's checkpoint."""

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
    """The roles of a generation; its workers begin once all roles are ready.

    `began` is called with each worker after its `Begin` was sent.
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
        #: The checkpoints that replacements of lost roles start from.
        self._newer: dict[RoleSpec, str | None] = {}
        self._servers = sum(m.spec.role is Role.SERVER for m in self.members.all())
        self._addresses: dict[int, str] = {}
        #: Whether workers have begun, and whether they are done and the other roles may exit.
        self.begun = self.released = False

    def joined(self, peer: bytes, message: RoleJoined, now: float) -> None:
        """Record that a role is up; send it its checkpoint as soon as it can use it."""
        spec = message.spec
        self.members.joined(peer, message, now)
        if spec.role is Role.SERVER:
            self.send(spec, Restore(self._start_of(spec)))
        elif spec.role.in_group:
            self._begin_if_complete(spec)

    def server_ready(self, message: ServerReady) -> None:
        """Record that a server, perhaps a replacement, accepts requests."""
        self._addresses[message.spec.rank] = message.address
        if self.begun:
            for member in self.members.group():
                self.send(member.spec, Servers(self._server_list()))
        else:
            self._begin_if_complete()

    def replace(self, lost: RoleSpec, spec: RoleSpec, now: float) -> None:
        """Put `spec` in the place of a lost role.

        A lost server's address stays until there is a new one: lists of servers have no gaps.
        """
        self.members.replace(lost, spec, now)

    def starts(self, spec: RoleSpec, checkpoint: str | None) -> None:
        """Record the checkpoint that a lost role's replacement is being started from."""
        self._newer[spec] = checkpoint

    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        """Send a message to a role, unless it is not connected (yet or any more)."""
        peer = self.members[spec].peer if spec in self.members else None
        if peer is not None:
            self._server.send(peer, message, buffers)

    def roles(self, role: Role) -> list[RoleSpec]:
        """Return the roles of one kind that have joined."""
        members = self.members.all()
        return [m.spec for m in members if m.spec.role is role and m.peer is not None]

    def _begin_if_complete(self, newcomer: RoleSpec | None = None) -> None:
        """Let all workers begin once all roles are ready; after that, only a newcomer."""
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
