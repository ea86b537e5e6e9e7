"""The roles of a job, and what every message has."""

import enum

import msgspec


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


class Message(msgspec.Struct, frozen=True, tag=True):
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
