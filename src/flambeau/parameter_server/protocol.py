"""Messages between workers and shards.

Every request has a number that its answer repeats. A request may arrive twice (if its answer was
lost): reading twice is harmless, and a gradient has a key by which it is applied only once. Rows
are sent as raw buffers after the message: the ids of each `TablePart`, in gradients each followed
by its numbers; dense values come last.
"""

from typing import Any, Literal

import msgspec

from flambeau.messaging import Codec

Outcome = Literal["applied", "duplicate", "late", "skipped"]


class _Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the class name is the tag on the wire."""


class TablePart(msgspec.Struct, frozen=True, array_like=True):
    """`count` ids of a table, which is identified by its number among the declared ones."""

    table: int
    count: int


class Key(msgspec.Struct, frozen=True, array_like=True):
    """Identity of a gradient, whichever worker sends it.

    For synchronous workers `batch` is the round; for asynchronous ones it is a batch of a task of
    an epoch.
    """

    generation: int
    epoch: int
    task: int
    batch: int


class Declare(_Message, frozen=True):
    """Tables and dense weights of a worker's model; they must be equal for all workers."""

    number: int
    worker: int
    generation: int
    tables: list[dict[str, Any]]
    layout: dict[str, Any] | None


class Declared(_Message, frozen=True):
    """Answer to `Declare`; `begun`: values exist already, from a checkpoint or another worker."""

    number: int
    begun: bool
    round: int


class Load(_Message, frozen=True):
    """First rows of a table. Buffers: ids and their values."""

    number: int
    table: int
    count: int


class Initialise(_Message, frozen=True):
    """First values of the dense weights (a buffer), ignored if values exist already."""

    number: int


class Pull(_Message, frozen=True):
    """Request for rows, and for dense weights. `training`: a new id reads as its first values."""

    number: int
    parts: list[TablePart]
    training: bool
    dense: bool


class Values(_Message, frozen=True):
    """Answer to `Pull`. Buffers: the rows of each part, then the dense weights.

    `version` counts updates.
    """

    number: int
    version: int


class Push(_Message, frozen=True):
    """Gradient of the mean over `rows` rows, computed with values of `version`.

    Rounds weigh it by `weight`, and divide the sum of all by the sum of their `weight`s. `rates`
    are the learning rates of the dense groups, `factor` multiplies those of the tables. `absent`
    are dense parameters without a gradient. `want` are the rows to return after the update.
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
    """Answer to `Push`. Buffers: the rows of each wanted part, then the updated dense weights.

    `round` is the one that is open now; `stop` means that training ends here. `dropped` counts the
    rows of this generation whose gradients were not applied in their rounds.
    """

    number: int
    version: int
    outcome: Outcome
    round: int
    stop: bool
    dropped: int


class TakeSnapshot(_Message, frozen=True):
    """Request to save the current state as snapshot `name`, as files in a directory.

    With `track`, changes are recorded from here on; with `incremental`, only rows that changed
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
    """Table's file in a snapshot; `full`: it does not build on an earlier one."""

    name: str
    file: str
    full: bool


class SnapshotDone(_Message, frozen=True):
    """Files of a snapshot by name, each with its size and checksum."""

    number: int
    files: dict[str, tuple[int, int]]
    tables: list[SnapshotFile]


class Waiting(_Message, frozen=True):
    """Keep-alive: the request was received, but its answer has to wait."""

    number: int


class Done(_Message, frozen=True):
    number: int


class Refused(_Message, frozen=True):
    """Error answer to a request; `error` is the name of the exception to raise.

    `errno` and `text` are those of an `OSError`; `errno` is 0 for all others.
    """

    number: int
    error: str
    text: str
    errno: int = 0


Request = Declare | Load | Initialise | Pull | Push | TakeSnapshot | AwaitSnapshot
Answer = Declared | Values | Pushed | SnapshotBegun | SnapshotDone | Waiting | Done | Refused
Messages = Request | Answer

CODEC: Codec[Messages] = Codec(Messages)

#: Largest frame: a table's part of one request, or a shard's range of dense weights.
MAX_FRAME_BYTES = 4 << 30
