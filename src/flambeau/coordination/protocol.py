"""What agents, roles and the coordinator say to each other.

agent -> coordinator     AgentJoined, AgentBeat, Spooled, RoleExited, RoleOutput
coordinator -> agent     StartRoles, EndRoles, EndRole, ShowStacks, Shutdown
role  -> coordinator     RoleJoined, ServerReady, Heartbeat, Report, RoleFailed, RoleDone
coordinator -> role      Begin, Servers, Restore, Stop
worker -> coordinator    StoreRequest, answered by StoreReply

Rounds, with a synchronous parameter server:

shard -> coordinator     ShardJoined, Staged, NormReply
coordinator -> shard     NormRequest, Commit
worker -> coordinator    StopRequest

Roles that request their work (asynchronous workers, predictors): see `task_messages`.
"""

from typing import Any

from flambeau.coordination.activity import Doing
from flambeau.coordination.file_messages import (
    AgentBeat,
    AgentJoined,
    FilePart,
    FilesSent,
    FilesStored,
    KeepFiles,
    Spooled,
    WantFiles,
)
from flambeau.coordination.rendezvous import StoreReply, StoreRequest
from flambeau.coordination.roles import Message, RoleSpec
from flambeau.coordination.round_messages import Commit, NormReply, NormRequest, Staged
from flambeau.coordination.task_messages import (
    Assigned,
    Contribution,
    Gathered,
    PartAssigned,
    PartProgress,
    PlanData,
    SlowestClock,
    StepGrant,
    StopRequest,
    SyncPoint,
    SyncPointDone,
    TaskRequest,
    Trained,
)
from flambeau.messaging import Codec


class StartRoles(Message, frozen=True):
    """Start these.

    `spools` are the rows of all agents' files, by frame and agent; `spooling` names the occasion on
    which they were written.
    """

    roles: list[RoleSpec]
    spools: dict[str, list[list[int]]] = {}
    spooling: str = ""


class EndRoles(Message, frozen=True):
    """End the roles of this generation; scripts get SIGTERM `grace` seconds before."""

    generation: int
    grace: float


class EndRole(Message, frozen=True):
    """End one role at once; another process will take its place."""

    spec: RoleSpec


class ShowStacks(Message, frozen=True):
    """Have a role print the Python stacks of its threads."""

    spec: RoleSpec


class Shutdown(Message, frozen=True):
    pass


class RoleExited(Message, frozen=True):
    spec: RoleSpec
    code: int
    out_of_memory: bool = False


class RoleOutput(Message, frozen=True):
    spec: RoleSpec
    stream: str
    lines: list[str]


class RoleJoined(Message, frozen=True):
    spec: RoleSpec
    pid: int


class ServerReady(Message, frozen=True):
    """A shard of the parameter server takes requests at `address`."""

    spec: RoleSpec
    address: str


class Restore(Message, frozen=True):
    """The checkpoint of the run that a server is to go on from; None: from nothing."""

    checkpoint: str | None


class Begin(Message, frozen=True):
    """Everybody is there; the parameter server's shards are at `servers`.

    With servers, all go on from the same `checkpoint`, if there is one.
    """

    servers: list[str] = []
    checkpoint: str | None = None


class Servers(Message, frozen=True):
    """A shard has moved: these are the addresses of all."""

    servers: list[str]


class Stop(Message, frozen=True):
    """Please save and end at a step on which all workers agree."""


class Heartbeat(Message, frozen=True):
    """A sign of life, and of progress: `marks` counts steps and batches of evaluations."""

    spec: RoleSpec
    marks: int = 0
    doing: Doing = Doing.WORKING


class Report(Message, frozen=True):
    """Something to observe: becomes an event of that kind."""

    spec: RoleSpec
    kind: str
    fields: dict[str, Any]


class RoleFailed(Message, frozen=True):
    """An exception ended the role; an empty `traceback`: `message` explains it to the user."""

    spec: RoleSpec
    error: str
    message: str
    traceback: str
    whole_traceback: str
    user_error: bool
    lost_peer: bool


class RoleDone(Message, frozen=True):
    """The role has finished its work; `summary` goes into the result."""

    spec: RoleSpec
    status: str
    summary: dict[str, Any]


class ShardJoined(Message, frozen=True):
    """The connection of a shard on which rounds are decided."""

    spec: RoleSpec


#: From a role itself, or from its agent about it.
FromRole = RoleJoined | ServerReady | Heartbeat | Report | RoleFailed | RoleDone | RoleExited
#: For the coordinator that decides what workers do; shards have connections of their own for it.
FromWorker = (
    PlanData | TaskRequest | Trained | SyncPointDone | Contribution | StopRequest | PartProgress
)
FromShard = ShardJoined | Staged | NormReply

Messages = (
    FromRole
    | FromWorker
    | FromShard
    | AgentJoined
    | AgentBeat
    | Spooled
    | FilePart
    | WantFiles
    | FilesSent
    | FilesStored
    | KeepFiles
    | StartRoles
    | EndRoles
    | EndRole
    | ShowStacks
    | Shutdown
    | RoleOutput
    | Restore
    | Begin
    | StoreRequest
    | StoreReply
    | Servers
    | Stop
    | NormRequest
    | Commit
    | Assigned
    | SlowestClock
    | StepGrant
    | SyncPoint
    | Gathered
    | PartAssigned
)

CODEC: Codec[Messages] = Codec(Messages)
#: Asynchronous workers exchange scores and the buffers of their models through the coordinator.
MAX_FRAME_BYTES = 256 << 20
