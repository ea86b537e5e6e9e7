"""What roles that request their work and the coordinator send each other.

Asynchronous workers:

worker -> coordinator    PlanData, TaskRequest, Trained, Contribution, SyncPointDone, StopRequest
coordinator -> worker    Assigned, StepGrant, SlowestClock, SyncPoint, Gathered

Processes that work on independent parts of the data (predictors):

role -> coordinator      TaskRequest, PartProgress
coordinator -> role      PartAssigned
"""

from typing import Any, Literal

from flambeau.coordination.roles import Message, RoleSpec
from flambeau.coordination.tasks import Homes, Task


class StopRequest(Message, frozen=True):
    """A worker's callback asked for an end."""

    spec: RoleSpec


class PlanData(Message, frozen=True):
    """What there is to train on: rows by number, or the rows of each shard, or one share a worker.

    `state` is where an earlier part of the run had come to, `progress` what the worker knows of its
    milestones (see `SyncPoint`). With `homes` a shard can be read by the workers of one agent only.
    """

    spec: RoleSpec
    kind: Literal["rows", "shards", "shares"]
    sizes: list[int]
    state: dict[str, Any] | None
    homes: Homes | None = None
    progress: dict[str, Any] = {}


class TaskRequest(Message, frozen=True):
    spec: RoleSpec


class Assigned(Message, frozen=True):
    """Train on this; all made `updates`. An idle worker gets `clock`, a new one `progress`."""

    task: Task
    clock: int | None
    updates: int = 0
    progress: dict[str, Any] = {}


class Trained(Message, frozen=True):
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


class SlowestClock(Message, frozen=True):
    """The clock of the slowest worker."""

    clock: int


class StepGrant(Message, frozen=True):
    """So many steps more (or fewer) may a worker begin. `clock` as in `Assigned`."""

    steps: int
    clock: int | None


class SyncPoint(Message, frozen=True):
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


class SyncPointDone(Message, frozen=True):
    spec: RoleSpec
    number: int
    stop: bool
    progress: dict[str, Any]


class Contribution(Message, frozen=True):
    """A worker's part of an exchange among all; the bytes are the message's buffer."""

    spec: RoleSpec
    key: str


class Gathered(Message, frozen=True):
    """Everybody's parts of an exchange, by rank, as buffers."""

    key: str


class PartAssigned(Message, frozen=True):
    """Work on the part of this number; None: no part is left, so end."""

    part: int | None


class PartProgress(Message, frozen=True):
    """Rows of a part that are done. `complete`: all are, and the buffer is the part's result."""

    spec: RoleSpec
    part: int
    rows: int
    complete: bool = False
