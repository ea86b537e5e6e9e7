"""A stage without processes: what is sent, told and failed is kept."""

from collections.abc import Sequence
from typing import Any

from flambeau.config import CodeRef, FileData, JobSettings, Local, ParameterServer
from flambeau.coordination.protocol import Messages
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.driver.coordinators import Stage


def spec(rank: int, role: Role = Role.WORKER, world: int = 2, attempt: int = 0) -> RoleSpec:
    return RoleSpec(role, rank, world, rank, world, 0, 0, attempt)


def job_settings(workers: int = 2, strategy: Any = None, **settings: Any) -> JobSettings:
    return JobSettings(
        model=CodeRef(path="mine:Net"),
        train=FileData(path="x"),
        strategy=strategy or ParameterServer(servers=2),
        cluster=Local(workers),
        **settings,
    )


class FakeStage(Stage):
    def __init__(self, workers: int) -> None:
        self.members = {rank: spec(rank, world=workers) for rank in range(workers)}
        self.sent: list[tuple[RoleSpec, Any, Sequence[Any]]] = []
        self.sent_to_peers: list[tuple[bytes, Any]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[str] = []

    def send(self, spec: RoleSpec, message: Messages, buffers: Sequence[Any] = ()) -> None:
        # As the controller does: to one that is not there, nothing is sent.
        if self.members.get(spec.rank) == spec:
            self.sent.append((spec, message, buffers))

    def send_peer(self, peer: bytes, message: Messages) -> None:
        self.sent_to_peers.append((peer, message))

    def roles(self, role: Role) -> list[RoleSpec]:
        return list(self.members.values()) if role is Role.WORKER else []

    def emit(self, kind: str, **fields: Any) -> None:
        self.told.append((kind, fields))

    def fail(self, text: str) -> None:
        self.failures.append(text)

    def heard(self, rank: int, kind: type) -> list[Any]:
        """The messages of one kind that a worker was sent, and forget them."""
        mine = [item for item in self.sent if item[0].rank == rank and isinstance(item[1], kind)]
        self.sent = [item for item in self.sent if item not in mine]
        return [message for _, message, _ in mine]
