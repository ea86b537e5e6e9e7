"""What agents, roles and the coordinator say to each other.

agent -> coordinator     AgentJoined, RoleExited, RoleOutput
coordinator -> agent     StartRoles, EndRoles, Shutdown
role  -> coordinator     RoleJoined, Heartbeat, Report, RoleFailed, RoleDone
coordinator -> role      Begin, Stop
"""

import enum
from typing import Any

import msgspec

from flambeau.messaging import Codec


class Role(enum.StrEnum):
    """What a child process of an agent does."""

    WORKER = "worker"
    EVALUATOR = "evaluator"
    FUNCTION = "function"
    SCRIPT = "script"

    @property
    def in_group(self) -> bool:
        """Whether it takes part in collective communication (has a rank among its like)."""
        return self is not Role.EVALUATOR


class _Message(msgspec.Struct, frozen=True, tag=True):
    """One kind of message; its class name is its tag."""


class RoleSpec(msgspec.Struct, frozen=True):
    """One child process to start."""

    role: Role
    rank: int
    world: int
    local_rank: int
    local_world: int
    node: int
    generation: int

    @property
    def name(self) -> str:
        """What people call it: `worker 3`, `evaluator`."""
        return f"worker {self.rank}" if self.role.in_group else str(self.role)


class AgentJoined(_Message, frozen=True):
    agent: int
    host: str


class StartRoles(_Message, frozen=True):
    roles: list[RoleSpec]


class EndRoles(_Message, frozen=True):
    """End the roles of this generation, after `grace` seconds by force."""

    generation: int
    grace: float


class Shutdown(_Message, frozen=True):
    pass


class RoleExited(_Message, frozen=True):
    spec: RoleSpec
    code: int


class RoleOutput(_Message, frozen=True):
    spec: RoleSpec
    stream: str
    lines: list[str]


class RoleJoined(_Message, frozen=True):
    """A role is up; `store` is the address where rank 0 will serve the rendezvous store."""

    spec: RoleSpec
    pid: int
    store: tuple[str, int] | None = None


class Begin(_Message, frozen=True):
    """Everybody is there: meet at `store`."""

    store: tuple[str, int]


class Stop(_Message, frozen=True):
    """Please save and end at a step on which all workers agree."""


class Heartbeat(_Message, frozen=True):
    spec: RoleSpec


class Report(_Message, frozen=True):
    """Something to observe: becomes an event of that kind."""

    spec: RoleSpec
    kind: str
    fields: dict[str, Any]


class RoleFailed(_Message, frozen=True):
    """An exception ended the role. `lost_peer`: it only saw that another one was gone."""

    spec: RoleSpec
    error: str
    message: str
    traceback: str
    user_error: bool
    lost_peer: bool


class RoleDone(_Message, frozen=True):
    """The role has finished its work; `summary` goes into the result."""

    spec: RoleSpec
    status: str
    summary: dict[str, Any]


Messages = (
    AgentJoined
    | StartRoles
    | EndRoles
    | Shutdown
    | RoleExited
    | RoleOutput
    | RoleJoined
    | Begin
    | Stop
    | Heartbeat
    | Report
    | RoleFailed
    | RoleDone
)

CODEC: Codec[Messages] = Codec(Messages)
