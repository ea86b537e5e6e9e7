"""Messages between agents, roles and the coordinator.

  agent -> coordinator     AgentJoined, AgentBeat, Spooled, RoleExited, RoleOutput
  coordinator -> agent     StartRoles, EndRoles, EndRole, ShowStacks, Shutdown
  role  -> coordinator     RoleJoined, ServerReady, Heartbeat, Report, RoleFailed, RoleDone
  coordinator -> role      Begin, Servers, Restore, Stop
  worker -> coordinator    StoreRequest, answered by StoreReply

Rounds, with a synchronous parameter server:

  shard -> coordinator     ShardJoined, Staged, NormReply
  coordinator -> shard     NormRequest, Commit
  worker -> coordinator    StopRequest

For roles that request their work (asynchronous workers, predictors), see `task_messages`.
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
    """Request to start these roles.

    `spools` has the numbers of rows in all agents' files, by frame and agent. `frames_digest`
    changes if the content of any of these files does.
    """

    roles: list[RoleSpec]
    spools: dict[str, list[list[int]]] = {}
    frames_digest: str = ""


class EndRoles(Message, frozen=True):
    """Request to end the roles of a generation; scripts get SIGTERM `grace` seconds earlier."""

    generation: int
    grace: float


class EndRole(Message, frozen=True):
    """Request to end one role immediately; another process will replace it."""

    spec: RoleSpec


class ShowStacks(Message, frozen=True):
    """Request that a role print the Python stacks of its threads."""

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
    """Message that a shard of the parameter server accepts requests at `address`."""

    spec: RoleSpec
    address: str


class Restore(Message, frozen=True):
    """The checkpoint of the run that a server loads; None: it starts empty."""

    checkpoint: str | None


class Begin(Message, frozen=True):
    """Message that all roles have joined; `servers` has the addresses of the server shards.

    With servers, all roles resume from the same `checkpoint`, if there is one.
    """

    servers: list[str] = []
    checkpoint: str | None = None


class Servers(Message, frozen=True):
    """Addresses of all server shards, sent when one of them has changed."""

    servers: list[str]


class Stop(Message, frozen=True):
    """Request to save a checkpoint and end at a step on which all workers agree."""


class Heartbeat(Message, frozen=True):
    """Sign of life and progress: `marks` counts steps and batches of evaluations."""

    spec: RoleSpec
    marks: int = 0
    doing: Doing = Doing.WORKING


class Report(Message, frozen=True):
    """Observation of a role, which becomes an event of that kind."""

    spec: RoleSpec
    kind: str
    fields: dict[str, Any]


class RoleFailed(Message, frozen=True):
    """Exception that ended a role. If `traceback` is empty, `message` explains it to the user."""

    spec: RoleSpec
    error: str
    message: str
    traceback: str
    whole_traceback: str
    user_error: bool
    lost_peer: bool


class RoleDone(Message, frozen=True):
    """Message that a role has finished its work; `summary` becomes part of the result."""

    spec: RoleSpec
    status: str
    summary: dict[str, Any]


class ShardJoined(Message, frozen=True):
    """First message of a shard on the connection that it uses for rounds."""

    spec: RoleSpec


#: From a role itself, or from its agent on its behalf.
FromRole = RoleJoined | ServerReady | Heartbeat | Report | RoleFailed | RoleDone | RoleExited
#: For the coordinator that assigns work; shards use separate connections for their messages.
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
