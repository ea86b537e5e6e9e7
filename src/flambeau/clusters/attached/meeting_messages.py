"""What the processes of a launcher tell rank 0, and what it tells them."""

import msgspec

from flambeau.messaging import Codec
from flambeau.version import __version__

MAX_BYTES = 1 << 30


class Arrived(msgspec.Struct, frozen=True, tag=True):
    """What a process tells rank 0: who it is, and what it was called with."""

    rank: int
    size: int
    node: str
    machine: str
    gpus: int
    call: str
    arguments: dict[str, str]
    version: str = __version__


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Rank 0 knows that the process is there."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """Be an agent; an `AgentOrder` comes with it."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Nothing; that it can be sent shows that the process is there."""


class Over(msgspec.Struct, frozen=True, tag=True):
    """The call is over; its value comes with it, or with `failed` its exception."""

    failed: bool


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """A process knows how the call ended."""

    rank: int


Said = Arrived | Welcome | Order | Ping | Over | Farewell
CODEC: Codec[Said] = Codec(Said)
