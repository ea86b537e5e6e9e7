"""What agents, roles and the coordinator say to each other.

agent -> coordinator     AgentJoined, Spooled, RoleExited, RoleOutput
coordinator -> agent     StartRoles, EndRoles, EndRole, ShowStacks, Shutdown
role  -> coordinator     RoleJoined, ServerReady, Heartbeat, Report, RoleFailed, RoleDone
coordinator -> role      Begin, Servers, Restore, Stop
worker -> coordinator    StoreRequest, answered by StoreReply

Rounds, with a synchronous parameter server:

shard -> coordinator     ShardJoined, Staged, NormReply
coordinator -> shard     NormRequest, Commit
worker -> coordinator    StopRequest

Workers that run free (asynchronous, bounded staleness):

worker -> coordinator    PlanData, TaskRequest, Trained, Contribution, SyncPointDone
coordinator -> worker    Assigned, StepGrant, SlowestClock, SyncPoint, Gathered

Processes that work on independent parts of the data (predictors):

role -> coordinator      TaskRequest, PartProgress
coordinator -> role      PartAssigned
"""

import enum
from typing import Any, Literal

import msgspec

from flambeau.coordination.activity import Doing
from flambeau.coordination.file_messages import (
    AgentJoined,
    FilePart,
    FilesSent,
    FilesStored,
    KeepFiles,
    Spooled,
    WantFiles,
)
from flambeau.coordination.rendezvous import StoreReply, StoreRequest
from flambeau.coordination.round_messages import Commit, NormReply, NormRequest, Staged
from flambeau.coordination.tasks import Task
from flambeau.messaging import Codec


class Role(enum.StrEnum):
    """What a child process of an agent does."""

    WORKER = "worker"
    SERVER = "server"
    EVALUATOR = "evaluator"
    FUNCTION = "function"
    SCRIPT = "script"
    PREDICTOR = "predictor"

    @property
    def in_group(self) -> bool:
        """Whether it is one of the job's workers, which have ranks and may talk to each other."""
        return self not in (Role.EVALUATOR, Role.SERVER)

    @property
    def takes_parts(self) -> bool:
        """Whether it works on parts of the data that are independent of each other."""
        return self is Role.PREDICTOR


class _Message(msgspec.Struct, frozen=True, tag=True):
    """One kind of message; its class name is its tag."""


class RoleSpec(msgspec.Struct, frozen=True):
    """One child process to start.

    A new `generation` starts all roles of a job again; `attempt` counts the processes that have had
    this role in one generation.
    """

    role: Role
    rank: int
    world: int
    local_rank: int
    local_world: int
    node: int
    generation: int
    attempt: int = 0

    @property
    def kind(self) -> str:
        """`worker`, whatever it runs, `server`, `evaluator` or `predictor`."""
        trains = self.role.in_group and not self.role.takes_parts
        return "worker" if trains else str(self.role)

    @property
    def name(self) -> str:
        """What people call it: `worker 3`, `server 0`, `predictor 1`, `evaluator`."""
        return self.kind if self.role is Role.EVALUATOR else f"{self.kind} {self.rank}"


class StartRoles(_Message, frozen=True):
    """Start these.

    `spools` are the rows of all agents' files, by frame and agent; `spooling` names the occasion on
    which they were written.
    """

    roles: list[RoleSpec]
    spools: dict[str, list[list[int]]] = {}
    spooling: str = ""


class EndRoles(_Message, frozen=True):
    """End the roles of this generation, after `grace` seconds by force."""

    generation: int
    grace: float


class EndRole(_Message, frozen=True):
    """End one role at once; another process will take its place."""

    spec: RoleSpec


class ShowStacks(_Message, frozen=True):
    """Have a role print the Python stacks of its threads."""

    spec: RoleSpec


class Shutdown(_Message, frozen=True):
    pass


class RoleExited(_Message, frozen=True):
    spec: RoleSpec
    code: int
    out_of_memory: bool = False


class RoleOutput(_Message, frozen=True):
    spec: RoleSpec
    stream: str
    lines: list[str]


class RoleJoined(_Message, frozen=True):
    spec: RoleSpec
    pid: int


class ServerReady(_Message, frozen=True):
    """A shard of the parameter server takes requests at `address`."""

    spec: RoleSpec
    address: str


class Restore(_Message, frozen=True):
    """The checkpoint of the run that a server is to go on from; None: from nothing."""

    checkpoint: str | None


class Begin(_Message, frozen=True):
    """Everybody is there; the parameter server's shards are at `servers`.

    With servers, all go on from the same `checkpoint`, if there is one.
    """

    servers: list[str] = []
    checkpoint: str | None = None


class Servers(_Message, frozen=True):
    """A shard has moved: these are the addresses of all."""

    servers: list[str]


class Stop(_Message, frozen=True):
    """Please save and end at a step on which all workers agree."""


class Heartbeat(_Message, frozen=True):
    """A sign of life, and of progress: `marks` counts steps and batches of evaluations."""

    spec: RoleSpec
    marks: int = 0
    doing: Doing = Doing.WORKING


class Report(_Message, frozen=True):
    """Something to observe: becomes an event of that kind."""

    spec: RoleSpec
    kind: str
    fields: dict[str, Any]


class RoleFailed(_Message, frozen=True):
    """An exception ended the role; an empty `traceback`: `message` explains it to the user."""

    spec: RoleSpec
    error: str
    message: str
    traceback: str
    whole_traceback: str
    user_error: bool
    lost_peer: bool


class RoleDone(_Message, frozen=True):
    """The role has finished its work; `summary` goes into the result."""

    spec: RoleSpec
    status: str
    summary: dict[str, Any]


class ShardJoined(_Message, frozen=True):
    """The connection of a shard on which rounds are decided."""

    spec: RoleSpec


class StopRequest(_Message, frozen=True):
    """A worker's callback asked for an end."""

    spec: RoleSpec


class PlanData(_Message, frozen=True):
    """What there is to train on: rows by number, or the rows of each shard, or one share a worker.

    `state` is where an earlier part of the run had come to, `progress` what the worker knows of its
    milestones (see `SyncPoint`). With `homes` a shard can be read by one worker only.
    """

    spec: RoleSpec
    kind: Literal["rows", "shards", "shares"]
    sizes: list[int]
    state: dict[str, Any] | None
    homes: list[int] | None = None
    progress: dict[str, Any] = {}


class TaskRequest(_Message, frozen=True):
    spec: RoleSpec


class Assigned(_Message, frozen=True):
    """Train on this; all made `updates`. An idle worker gets `clock`, a new one `progress`."""

    task: Task
    clock: int | None
    updates: int = 0
    progress: dict[str, Any] = {}


class Trained(_Message, frozen=True):
    """Batches of a task that have been pushed: their rows, the sum of loss x rows, and seconds.

    The gradients of `dropped` batches were not finite, and left out. `left_out` are rows of batches
    (by number) that were read, and not trained on.
    """

    spec: RoleSpec
    task: int
    epoch: int
    batches: list[tuple[int, int]]
    loss: float
    seconds: float
    data_seconds: float
    waiting_seconds: float
    lr: float
    complete: bool
    dropped: list[int] = []
    left_out: dict[int, int] = {}


class SlowestClock(_Message, frozen=True):
    """The clock of the slowest worker."""

    clock: int


class StepGrant(_Message, frozen=True):
    """So many steps more (or fewer) may a worker begin. `clock` as in `Assigned`."""

    steps: int
    clock: int | None


class SyncPoint(_Message, frozen=True):
    """All workers meet between two batches, at `step` updates in all, to do what is asked.

    `progress` is what the first worker knew after the previous one, for a worker that is new.
    `stops`: it is the last, although there is more to train on.
    """

    number: int
    step: int
    epoch: int
    evaluate: bool
    save: bool
    last: bool
    plan: dict[str, Any]
    progress: dict[str, Any]
    stops: bool = False


class SyncPointDone(_Message, frozen=True):
    spec: RoleSpec
    number: int
    stop: bool
    progress: dict[str, Any]


class Contribution(_Message, frozen=True):
    """A worker's part of an exchange among all; the bytes are the message's buffer."""

    spec: RoleSpec
    key: str


class Gathered(_Message, frozen=True):
    """Everybody's parts of an exchange, by rank, as buffers."""

    key: str


class PartAssigned(_Message, frozen=True):
    """Work on the part of this number; None: no part is left, so end."""

    part: int | None


class PartProgress(_Message, frozen=True):
    """Rows of a part that are done. `complete`: all are, and the buffer is the part's result."""

    spec: RoleSpec
    part: int
    rows: int
    complete: bool = False


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
