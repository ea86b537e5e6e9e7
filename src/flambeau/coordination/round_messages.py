"""What shards and the coordinator send each other in a synchronous round.

shard -> coordinator     Staged, NormReply
coordinator -> shard     NormRequest, Commit
"""

from flambeau.coordination.roles import Message


class Staged(Message, frozen=True):
    """A shard holds a worker's gradient of a round, made of `rows` of the `planned` rows."""

    shard: int
    generation: int
    round: int
    worker: int
    rows: int
    planned: int
    finite: bool


class NormReply(Message, frozen=True):
    """The squared norm of a shard's part of the members' gradient."""

    shard: int
    generation: int
    round: int
    squares: float


class NormRequest(Message, frozen=True):
    round: int
    members: list[int]


class Commit(Message, frozen=True):
    """Apply the members' gradients times `scale` (or drop them all), and begin the next round.

    With `stop` it was the last one: the workers save and end. `dropped` counts the rows of this
    generation whose gradients were not applied.
    """

    round: int
    members: list[int]
    scale: float
    apply: bool
    stop: bool
    dropped: int
