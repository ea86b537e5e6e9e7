"""Messages between server shards and the coordinator in a synchronous round.

shard -> coordinator     Staged, NormReply
coordinator -> shard     NormRequest, Commit
"""

from flambeau.coordination.roles import Message


class Staged(Message, frozen=True):
    """Message that a shard holds a worker's gradient, of `rows` of the `planned` rows."""

    shard: int
    generation: int
    round: int
    worker: int
    rows: int
    planned: int
    finite: bool


class NormReply(Message, frozen=True):
    """Squared norm of a shard's part of the members' gradient."""

    shard: int
    generation: int
    round: int
    squares: float


class NormRequest(Message, frozen=True):
    round: int
    members: list[int]


class Commit(Message, frozen=True):
    """Request to apply the members' gradients times `scale` and to begin the next round.

    If `apply` is false, the gradients are dropped. With `stop` it was the last round: the workers
    save and end. `dropped` counts the rows of this generation whose gradients were not applied.
    """

    round: int
    members: list[int]
    scale: float
    apply: bool
    stop: bool
    dropped: int
