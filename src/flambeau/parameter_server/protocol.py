"""What workers and shards say to each other.

Every request has a number that its answer repeats. A request may come again (its answer may have
been lost): reading twice is harmless, and a gradient has a key by which it is applied only once.
Rows travel as raw buffers after the message: for a list of `TablePart`s, the ids of each, and for
gradients its numbers after its ids; dense values come last.
"""

from typing import Any, Literal

import msgspec

from flambeau.messaging import Codec

Outcome = Literal["applied", "duplicate", "late", "skipped"]


class _Message(msgspec.Struct, frozen=True, tag=True):
    """One kind of message; its class name is its tag."""


class TablePart(msgspec.Struct, frozen=True, array_like=True):
    """`count` ids of a table, which is known by its number among the declared ones."""

    table: int
    count: int


class Key(msgspec.Struct, frozen=True, array_like=True):
    """Which gradient this is, whoever sends it.

    Workers in lockstep name the round; those that run free the batch of a task of an epoch.
    """

    generation: int
    epoch: int
    task: int
    batch: int


class Declare(_Message, frozen=True):
    """The tables and the dense weights of a worker's model; all workers must say the same."""

    number: int
    worker: int
    generation: int
    tables: list[dict[str, Any]]
    layout: dict[str, Any] | None


class Declared(_Message, frozen=True):
    """`begun`: whether there are values already, from a checkpoint or another worker."""

    number: int
    begun: bool
    round: int


class Load(_Message, frozen=True):
    """Rows that a table begins with. Buffers: ids and their values."""

    number: int
    table: int
    count: int


class Initialise(_Message, frozen=True):
    """The first values of the dense weights (a buffer), unless there are values already."""

    number: int


class Pull(_Message, frozen=True):
    """Rows for ids, and the dense weights. `training`: a new id reads as it would begin."""

    number: int
    parts: list[TablePart]
    training: bool
    dense: bool


class Values(_Message, frozen=True):
    """Buffers: the rows of each part, then the dense weights. `version` counts updates."""

    number: int
    version: int


class Push(_Message, frozen=True):
    """A gradient of the mean over `rows` rows, computed with values of `version`.

    Rounds weigh it by `weight`, and divide the sum of all by the sum of their `weight`s.
    `rates` are the learning rates of the dense groups, `factor` multiplies those of the tables.
    `absent` are dense parameters without a gradient. `want` asks for rows after the update.
    """

    number: int
    worker: int
    key: Key
    rows: int
    planned: int
    weight: float
    version: int
    finite: bool
    parts: list[TablePart]
    dense: bool
    absent: list[int]
    rates: list[float]
    factor: float
    compression: Literal["none", "fp16", "bf16"]
    want: list[TablePart]


class Pushed(_Message, frozen=True):
    """Buffers: the rows of each wanted part, then the dense weights after the update.

    `round` is the one that is open now; with `stop` the training ends here. `dropped` counts the
    rows of this generation whose gradients were not applied in their rounds.
    """

    number: int
    version: int
    outcome: Outcome
    round: int
    stop: bool
    dropped: int


class TakeSnapshot(_Message, frozen=True):
    """Save this moment, as snapshot `name`, as files in a directory.

    With `track`, changes are remembered from here on; with `incremental`, only rows that changed
    since the last full snapshot are saved.
    """

    number: int
    name: str
    directory: str
    track: bool
    incremental: bool


class SnapshotBegun(_Message, frozen=True):
    number: int


class AwaitSnapshot(_Message, frozen=True):
    number: int
    name: str


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    """A table's file in a snapshot; `full`: it does not build on an earlier one."""

    name: str
    file: str
    full: bool


class SnapshotDone(_Message, frozen=True):
    """Files with their sizes and checksums."""

    number: int
    files: dict[str, tuple[int, int]]
    tables: list[SnapshotFile]


class Waiting(_Message, frozen=True):
    """A sign of life: the answer must wait for others."""

    number: int


class Done(_Message, frozen=True):
    number: int


class Refused(_Message, frozen=True):
    """What was asked is wrong; `error` is the name of the exception to raise.

    `errno` and `text` are those of an `OSError`; 0 for all others.
    """

    number: int
    error: str
    text: str
    errno: int = 0


Request = Declare | Load | Initialise | Pull | Push | TakeSnapshot | AwaitSnapshot
Answer = Declared | Values | Pushed | SnapshotBegun | SnapshotDone | Waiting | Done | Refused
Messages = Request | Answer

CODEC: Codec[Messages] = Codec(Messages)

#: No frame is larger; a table's part of one request, or a shard's range of dense weights.
MAX_FRAME_BYTES = 4 << 30
