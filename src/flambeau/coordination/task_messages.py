"""Messages between the coordinator and roles that request their work.

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
    """Request of a worker's callback to stop the training."""

    spec: RoleSpec


class PlanData(Message, frozen=True):
    """The training data: rows by number, the rows of each shard, or one share per worker.

    `state` is the position that an earlier part of the run had reached; `progress` has the
    milestones that the worker has recorded (see `SyncPoint`). With `homes`, only the workers of one
    agent can read a shard.
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
    """Task for a worker. `updates`: total so far. Idle workers get `clock`, new ones `progress`."""

    task: Task
    clock: int | None
    updates: int = 0
    progress: dict[str, Any] = {}


class Trained(Message, frozen=True):
    """Batches of a task that have been pushed: their rows, the sum of loss x rows, and seconds.

    The gradients of `dropped` batches were not finite and were left out. `left_out` has the rows of
    batches (by number) that were read but not trained on.
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
    """The slowest clock."""

    clock: int


class StepGrant(Message, frozen=True):
    """Number of additional steps that a worker may begin; a negative number takes steps back.

    `clock` is as in `Assigned`.
    """

    steps: int
    clock: int | None


class SyncPoint(Message, frozen=True):
    """Request that all workers meet between two batches, at `step` updates in total.

    They evaluate or save there as requested. `progress` is the first worker's progress after the
    previous sync point, for new workers. `stops`: it is the last one, although data remains to
    train on. `ranks` are all workers that meet.
    """

    number: int
    step: int
    epoch: int
    evaluate: bool
    save: bool
    last: bool
    plan: dict[str, Any]
    progress: dict[str, Any]
    ranks: list[int]
    stops: bool = False


class SyncPointDone(Message, frozen=True):
    spec: RoleSpec
    number: int
    stop: bool
    progress: dict[str, Any]


class Contribution(Message, frozen=True):
    """A worker's part of an exchange between all workers; the bytes are the message's buffer."""

    spec: RoleSpec
    key: str


class Gathered(Message, frozen=True):
    """The parts of all workers in an exchange, by rank, as buffers."""

    key: str


class PartAssigned(Message, frozen=True):
    """Number of the part to work on; None: no part is left, so end."""

    part: int | None


class PartProgress(Message, frozen=True):
    """Rows of a part that are done. `complete`: all are, and the buffer is the part's result."""

    spec: RoleSpec
    part: int
    rows: int
    complete: bool = False
