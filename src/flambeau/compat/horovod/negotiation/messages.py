"""Messages between the ranks and the controller, with their requests and agreements."""

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
    """A rank's request for one operation. All ranks of the set have to send matching requests.

    `splits` are the numbers of rows for each rank (alltoall) or the ranks of a process set. The
    `group_size` operations of a `group` are executed together.
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
        """The process set and name, which are unique among operations in flight."""
        return self.process_set, self.name


class Agreement(msgspec.Struct, frozen=True, array_like=True):
    """An operation that every rank executes next, or that fails on all ranks with `error`.

    `sizes` depends on the kind: rows of each rank (allgather), rows from each rank to each rank
    (alltoall), the last rank to join (join), or the number of a new process set. All ranks may
    submit `cache_id` in place of the same request from now on.
    """

    request: Request
    sizes: list[int] = []
    error: str = ""
    cache_id: int = -1


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message of a rank."""

    rank: int
    size: int
    machine: str
    version: str


class Begin(msgspec.Struct, frozen=True, tag=True):
    """All ranks have arrived; `machines` are their machines, by rank."""

    machines: list[str]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The rank cannot take part; without `error` it may retry."""

    error: str = ""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """New requests, and by process set the numbers of agreements whose requests are repeated."""

    requests: list[Request]
    repeats: dict[int, list[int]] = {}


class Agreed(msgspec.Struct, frozen=True, tag=True):
    """Operations to execute next, in this order, and agreements to drop from caches afterwards."""

    items: list[Agreement | int]
    dropped: list[int] = []


class Alive(msgspec.Struct, frozen=True, tag=True):
    """A heartbeat of the sender."""


class Warn(msgspec.Struct, frozen=True, tag=True):
    """A warning about operations that have waited for long."""

    text: str


class Lost(msgspec.Struct, frozen=True, tag=True):
    """A rank is lost: no further agreement is possible."""

    reason: str


class Leave(msgspec.Struct, frozen=True, tag=True):
    """A rank shuts down."""

    rank: int


class Closing(msgspec.Struct, frozen=True, tag=True):
    """A rank shuts down: finish the agreed operations, and request no more."""

    reason: str


class Idle(msgspec.Struct, frozen=True, tag=True):
    """A rank has executed all that was agreed before `Closing`."""

    rank: int


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """All ranks have executed everything: close the connections."""


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
