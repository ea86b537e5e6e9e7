"""Who is in a synchronous round, and what becomes of it: decided once, for all shards.

    open -- enough workers are on all shards --> closed:
        Spoiled   a gradient is not finite, and `non_finite="fail"`: the end
        NormRequest    with `clip_norm`: Commit follows when all shards have answered
        Commit    otherwise

With `CloseRound` the next round is open. Only the open round is remembered.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, final

from flambeau.coordination.consistency import Synchronous
from flambeau.errors import ProtocolError


@dataclass(frozen=True)
class AskNorm:
    """Ask all shards for the squared norm of the members' mean gradient."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class CloseRound:
    """All shards apply the members' mean gradient times `scale`, or with `apply=False` nothing.

    Whatever else they hold of this round is dropped.
    """

    round: int
    members: tuple[int, ...]
    scale: float
    apply: bool


@dataclass(frozen=True)
class Spoiled:
    """The training cannot go on: gradients of these workers are not finite."""

    round: int
    workers: tuple[int, ...]

    @property
    def message(self) -> str:
        """What to tell the user."""
        names = ", ".join(f"worker {worker}" for worker in self.workers)
        return (
            f"the gradient of round {self.round} is not finite ({names}): lower the learning rate, "
            "set clip_norm, or leave out such rounds with non_finite='skip'"
        )


Decision = AskNorm | CloseRound | Spoiled


@dataclass
class _OpenRound:
    """What is known of the open round; `members` are set once it is decided who they are."""

    shards: dict[int, set[int]] = field(default_factory=dict)
    #: Workers whose gradient is on all shards.
    arrived: set[int] = field(default_factory=set)
    rows: dict[int, int] = field(default_factory=dict)
    planned: int = 0
    not_finite: set[int] = field(default_factory=set)
    members: tuple[int, ...] | None = None
    squares: dict[int, float] = field(default_factory=dict)

    def staged(self, worker: int, shard: int, rows: int, finite: bool, of_shards: int) -> None:
        on = self.shards.setdefault(worker, set())
        on.add(shard)
        if len(on) == of_shards:
            self.arrived.add(worker)
        self.rows[worker] = rows
        if not finite:
            self.not_finite.add(worker)

    def rows_of(self, workers: Iterable[int]) -> int:
        return sum(self.rows[worker] for worker in workers)


@final
class Rounds:
    """The open round (`current`) and the totals of those before it.

    `late` counts gradients that were not in their round although a shard has reported them. Rows
    that a round had planned are either in `applied_rows` or in `dropped_rows` once it is closed.
    `skipped_rounds` were closed without an update.
    """

    def __init__(
        self,
        workers: int,
        shards: int,
        policy: Synchronous,
        clip_norm: float | None = None,
        non_finite: Literal["skip", "fail"] = "fail",
        *,
        start: int = 0,
    ) -> None:
        self.current = start
        self.applied_rows = self.dropped_rows = self.skipped_rounds = self.late = 0
        self._workers, self._shards, self._policy = workers, shards, policy
        self._clip_norm, self._non_finite = clip_norm, non_finite
        self._open = _OpenRound()
        self._last_counted: dict[int, int] = {}

    def staged(
        self, round: int, worker: int, shard: int, rows: int, finite: bool, planned: int = 0
    ) -> list[Decision]:
        """A shard holds a worker's gradient of a round, or has dropped it because it was late.

        `planned` are the rows of all workers in this round, 0 if that is not known; then rows of
        late gradients count as dropped when they are reported.
        """
        self._check(0 <= worker < self._workers, round, shard)
        if round < self.current or self._open.members is not None:
            self._count_late(round, worker, 0 if planned else rows)
            return []
        self._open.planned = planned
        self._open.staged(worker, shard, rows, finite, self._shards)
        members = self._policy.members(self._open.arrived)
        return [] if members is None else [self._close(tuple(sorted(members)))]

    def summed(self, round: int, shard: int, squares: float) -> list[Decision]:
        """A shard's part of the squared norm of the members' mean gradient."""
        asked = self._clip_norm is not None and self._open.members is not None
        self._check(asked or round < self.current, round, shard)
        if round < self.current or shard in self._open.squares:
            return []
        self._open.squares[shard] = squares
        return [self._clip()] if len(self._open.squares) == self._shards else []

    def _close(self, members: tuple[int, ...]) -> Decision:
        self._open.members = members
        for worker in self._open.rows.keys() - set(members):
            self._count_late(self.current, worker, 0)
        self._last_counted.update(dict.fromkeys(members, self.current))
        bad = tuple(worker for worker in members if worker in self._open.not_finite)
        if bad:
            return self._spoil(bad)
        if self._open.rows_of(members) == 0:  # whoever had rows is late: there is no mean
            return self._commit(apply=False)
        if self._clip_norm is not None:
            return AskNorm(self.current, members)
        return self._commit(apply=True)

    def _clip(self) -> Decision:
        assert self._clip_norm is not None
        assert self._open.members is not None
        # In the shards' order, whichever answered first: floating-point sums depend on it.
        total = sum(self._open.squares[shard] for shard in range(self._shards))
        if not math.isfinite(total):
            return self._spoil(self._open.members)
        return self._commit(apply=True, scale=min(1.0, self._clip_norm / (total**0.5 + 1e-6)))

    def _spoil(self, workers: tuple[int, ...]) -> Decision:
        if self._non_finite == "fail":
            return Spoiled(self.current, workers)
        return self._commit(apply=False)

    def _commit(self, *, apply: bool, scale: float = 1.0) -> Decision:
        done = self._open
        assert done.members is not None
        applied = done.rows_of(done.members) if apply else 0
        self.applied_rows += applied
        self.dropped_rows += (done.planned or done.rows_of(done.rows)) - applied
        self.skipped_rounds += not apply
        decision = CloseRound(self.current, done.members, scale, apply)
        self.current, self._open = self.current + 1, _OpenRound()
        return decision

    def _count_late(self, round: int, worker: int, rows: int) -> None:
        """Count a gradient that is not in its round, once, however many shards report it.

        A worker's gradients come to each shard in the order of their rounds, so that one number
        for each worker is enough to know which have been counted.
        """
        if round > self._last_counted.get(worker, -1):
            self._last_counted[worker] = round
            self.late += 1
            self.dropped_rows += rows

    def _check(self, expected: bool, round: int, shard: int) -> None:
        if not expected or round > self.current or not 0 <= shard < self._shards:
            raise ProtocolError(
                f"a report of shard {shard} on round {round} does not fit: round {self.current} is "
                f"open, of {self._workers} workers and {self._shards} shards"
            )
