"""Members and outcome of a synchronous round, decided once for all shards.

  open -- gradients of enough workers are on all shards --> closed:
      Spoiled        a gradient is not finite, and `non_finite="fail"`: the training fails
      AskNorm        with `clip_norm`: CloseRound follows when all shards have answered
      CloseRound     otherwise

`CloseRound` opens the next round. Only the open round is kept in memory.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, final

from flambeau.coordination.consistency import Synchronous
from flambeau.errors import ProtocolError


@dataclass(frozen=True)
class AskNorm:
    """Request to all shards for the squared norm of the members' mean gradient."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class CloseRound:
    """Decision that all shards apply the members' mean gradient times `scale`.

    With `apply=False` they apply nothing. Other gradients of this round are dropped.
    """

    round: int
    members: tuple[int, ...]
    scale: float
    apply: bool


@dataclass(frozen=True)
class Spoiled:
    """Decision that the training fails: gradients of these workers are not finite."""

    round: int
    workers: tuple[int, ...]

    @property
    def message(self) -> str:
        """Error message for the user."""
        names = ", ".join(f"worker {worker}" for worker in self.workers)
        return (
            f"the gradient of round {self.round} is not finite ({names}): lower the learning rate, "
            "set clip_norm, or skip such rounds with non_finite='skip'"
        )


Decision = AskNorm | CloseRound | Spoiled


@dataclass
class _OpenRound:
    """State of the open round; `members` is None until they are decided."""

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
    """The open round (`current`) and the totals of the previous ones.

    `late` counts gradients that a shard has reported after their round was decided. When a round is
    closed, each of its planned rows is counted in `applied_rows` or in `dropped_rows`.
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
        """Record that a shard holds a worker's gradient of a round, or has dropped it as late.

        `planned` is the number of rows of all workers in this round, or 0 if it is unknown; then
        rows of late gradients count as dropped when they are reported.
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
        """Record a shard's part of the squared norm of the members' mean gradient."""
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
        if self._open.rows_of(members) == 0:  # only late workers had rows: there is no mean
            return self._commit(apply=False)
        if self._clip_norm is not None:
            return AskNorm(self.current, members)
        return self._commit(apply=True)

    def _clip(self) -> Decision:
        assert self._clip_norm is not None
        assert self._open.members is not None
        # In the order of shards, not of answers, since floating-point sums depend on it.
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
        """Count a late gradient once, even if several shards report it.

        A worker's gradients arrive at each shard in the order of their rounds, so one number for
        each worker is enough to know which have been counted.
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
