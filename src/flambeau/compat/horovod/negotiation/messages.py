"""Messages between the ranks and the controller, and what one request or agreement says."""

from typing import Literal

import msgspec

from flambeau.coordination.rendezvous import StoreReply, StoreRequest
from flambeau.messaging import Codec

MAX_BYTES = 64 << 20
#: The process set of all ranks.
ALL = 0

Kind = Literal[
    "allreduce",
    "adasum",
    "allgather",
    "broadcast",
    "alltoall",
    "reducescatter",
    "barrier",
    "join",
    "add_process_set",
    "remove_process_set",
]
#: Reductions, by Horovod's numbers.
OPERATIONS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One operation as one rank requests it. All ranks of the set have to request it alike.

    `splits` are rows for each rank (alltoall) or the ranks of a process set; `group` names
    operations that are executed together, of which there are `group_size`.
    """

    kind: Kind
    name: str
    dtype: str = ""
    shape: list[int] = []
    op: int = 1
    root: int = 0
    process_set: int = ALL
    prescale: float = 1.0
    postscale: float = 1.0
    splits: list[int] = []
    group: str = ""
    group_size: int = 1

    @property
    def key(self) -> tuple[int, str]:
        """What tells operations in flight apart."""
        return self.process_set, self.name


class Agreement(msgspec.Struct, frozen=True, array_like=True):
    """An operation that every rank executes now, or that fails everywhere with `error`.

    `sizes` depends on the kind: rows of each rank (allgather), rows from each rank to each rank
    (alltoall), the last rank to join (join), or the number of a new process set. All ranks may
    submit `cache_id` in place of the same request from now on.
    """

    request: Request
    sizes: list[int] = []
    error: str = ""
    cache_id: int = -1


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A rank arrives."""

    rank: int
    size: int
    machine: str
    version: str


class Begin(msgspec.Struct, frozen=True, tag=True):
    """All ranks have arrived; where they are, by rank."""

    machines: list[str]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The rank cannot take part; without `error` it may try again."""

    error: str = ""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Requests, and numbers of agreements whose requests are repeated, by process set."""

    requests: list[Request]
    repeats: dict[int, list[int]] = {}


class Agreed(msgspec.Struct, frozen=True, tag=True):
    """What to execute next, in this order, and which agreements leave the cache afterwards."""

    items: list[Agreement | int]
    dropped: list[int] = []


class Alive(msgspec.Struct, frozen=True, tag=True):
    """The sender is there."""


class Warn(msgspec.Struct, frozen=True, tag=True):
    """Operations have waited for long."""

    text: str


class Lost(msgspec.Struct, frozen=True, tag=True):
    """A rank is gone, so that nothing can be agreed any more."""

    reason: str


class Leave(msgspec.Struct, frozen=True, tag=True):
    """A rank shuts down."""

    rank: int


class Closing(msgspec.Struct, frozen=True, tag=True):
    """A rank shuts down: finish what is agreed, and request nothing more."""

    reason: str


class Idle(msgspec.Struct, frozen=True, tag=True):
    """A rank has executed all that was agreed before `Closing`."""

    rank: int


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """All ranks have executed everything: connections may end."""


Said = (
    Hello
    | Begin
    | Refused
    | Submit
    | Agreed
    | Alive
    | Warn
    | Lost
    | Leave
    | Closing
    | Idle
    | Goodbye
    | StoreRequest
    | StoreReply
)
CODEC: Codec[Said] = Codec(Said)
