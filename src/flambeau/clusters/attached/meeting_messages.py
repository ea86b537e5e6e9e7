"""Messages between rank 0 and the other processes of a launcher."""

import msgspec

from flambeau.messaging import Codec
from flambeau.version import __version__

MAX_BYTES = 1 << 30


class Arrived(msgspec.Struct, frozen=True, tag=True):
    """First message of a process to rank 0: its identity, and the call with its arguments."""

    rank: int
    size: int
    node: str
    machine: str
    gpus: int
    call: str
    arguments: dict[str, str]
    version: str = __version__


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Reply to `Arrived`: rank 0 has registered the process."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """Request to run an agent; an `AgentOrder` comes with it."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Empty message: if it can be sent, the process is still connected."""


class Over(msgspec.Struct, frozen=True, tag=True):
    """End of the call; its return value comes with it, or its exception if it `failed`."""

    failed: bool


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """Acknowledgement that a process has received the outcome of the call."""

    rank: int


Said = Arrived | Welcome | Order | Ping | Over | Farewell
CODEC: Codec[Said] = Codec(Said)
