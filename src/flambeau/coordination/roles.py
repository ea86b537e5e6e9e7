"""Roles of a job, and the base class of messages."""

import enum

import msgspec


class Role(enum.StrEnum):
    """Kind of work that a child process of an agent does."""

    WORKER = "worker"
    SERVER = "server"
    EVALUATOR = "evaluator"
    FUNCTION = "function"
    SCRIPT = "script"
    PREDICTOR = "predictor"
    PREPARER = "preparer"

    @property
    def in_group(self) -> bool:
        """Whether it is one of the job's workers, which have ranks and form a group."""
        return self not in (Role.EVALUATOR, Role.SERVER)

    @property
    def takes_parts(self) -> bool:
        """Whether it works on parts of the data that are independent of each other."""
        return self in (Role.PREDICTOR, Role.PREPARER)


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base class of messages; the name of the subclass is its tag."""


class RoleSpec(msgspec.Struct, frozen=True):
    """One child process to start.

    `node` is the number of its agent, and `machine` that of its machine. Local ranks count all
    workers of a machine, including those of other agents. `core_share` is (index, number of
    shares): the share of its agent's cores that a worker uses. A new `generation` restarts all
    roles of a job; `attempt` counts the processes that have had this role in one generation.
    """

    role: Role
    rank: int
    world: int
    local_rank: int
    local_world: int
    node: int
    generation: int
    attempt: int = 0
    machine: int = 0
    core_share: tuple[int, int] = (0, 1)

    @property
    def kind(self) -> str:
        """`worker` (whatever it runs), `server`, `evaluator`, `predictor` or `preparer`."""
        trains = self.role.in_group and not self.role.takes_parts
        return "worker" if trains else str(self.role)

    @property
    def name(self) -> str:
        """Name in messages to the user: `worker 3`, `server 0`, `predictor 1`, `evaluator`."""
        return self.kind if self.role is Role.EVALUATOR else f"{self.kind} {self.rank}"
