import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from flambeau.coordination.consistency import Synchronous
from flambeau.coordination.rounds import AskNorm, CloseRound, Decision, Rounds, Spoiled
from flambeau.errors import ProtocolError


def rounds(
    workers: int = 2,
    shards: int = 2,
    backup: int = 0,
    clip_norm: float | None = None,
    non_finite: Literal["skip", "fail"] = "fail",
    start: int = 0,
) -> Rounds:
    policy = Synchronous(workers, backup)
    return Rounds(workers, shards, policy, clip_norm, non_finite, start=start)


def push(
    to: Rounds, number: int, worker: int, *, shards: int = 2, finite: bool = True, rows: int = 8
) -> list[Decision]:
    """All shards report one gradient, one of them that it is not `finite`."""
    reports = [(shard, finite or shard > 0) for shard in range(shards)]
    return [d for s, ok in reports for d in to.staged(number, worker, s, rows, ok, planned=16)]


def totals(of: Rounds) -> dict[str, int]:
    names = ("current", "applied_rows", "dropped_rows", "skipped_rounds", "late")
    return {name: getattr(of, name) for name in names}


def test_a_round_is_committed_when_all_workers_are_on_all_shards() -> None:
    sync = rounds()
    assert push(sync, 0, 1) == []
    assert sync.staged(0, 0, 0, 8, True) == []
    assert sync.staged(0, 0, 1, 8, True) == [CloseRound(0, (0, 1), scale=1.0, apply=True)]
    assert sync.current == 1


def test_a_gradient_that_is_not_on_all_shards_is_no_member() -> None:
    sync = rounds(workers=3, backup=1)
    sync.staged(0, 0, 0, 8, True)
    push(sync, 0, 2)
    assert push(sync, 0, 1) == [CloseRound(0, (1, 2), scale=1.0, apply=True)]


def test_members_are_in_order() -> None:
    sync = rounds(workers=9, backup=7)
    push(sync, 0, 8)
    assert push(sync, 0, 1) == [CloseRound(0, (1, 8), scale=1.0, apply=True)]


def test_rounds_go_on_where_a_run_was() -> None:
    sync = rounds(workers=1, start=70)
    assert push(sync, 70, 0) == [CloseRound(70, (0,), scale=1.0, apply=True)]


def test_what_comes_after_its_round_is_late_once_however_many_shards_report_it() -> None:
    sync = rounds(backup=1)
    push(sync, 0, 1)
    assert push(sync, 0, 0) == []
    assert (sync.late, sync.applied_rows, sync.dropped_rows) == (1, 8, 8)


def test_a_gradient_that_is_half_there_when_its_round_closes_is_late_once() -> None:
    sync = rounds(backup=1)
    sync.staged(0, 0, 0, 8, True, planned=16)
    push(sync, 0, 1)
    sync.staged(0, 0, 1, 8, True, planned=16)
    assert (sync.late, sync.dropped_rows) == (1, 8)


def test_planned_rows_that_nobody_pushed_are_dropped() -> None:
    sync = rounds(backup=1)
    push(sync, 0, 1, rows=5)
    assert (sync.applied_rows, sync.dropped_rows) == (5, 11)


def test_where_no_rows_are_planned_those_of_late_gradients_are_dropped_when_they_come() -> None:
    sync = rounds(workers=3, shards=1, backup=2)
    sync.staged(0, 0, 0, 5, True)
    for _ in range(2):
        sync.staged(0, 1, 0, 3, True)
    assert (sync.applied_rows, sync.dropped_rows) == (5, 3)


def test_a_round_without_rows_is_committed_but_not_applied() -> None:
    sync = rounds(backup=1, clip_norm=1.0)
    assert push(sync, 0, 0, rows=0) == [CloseRound(0, (0,), scale=1.0, apply=False)]
    assert (sync.skipped_rounds, sync.dropped_rows) == (1, 16)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_gradient_that_is_not_finite_skips_the_round(clip_norm: float | None) -> None:
    sync = rounds(non_finite="skip", clip_norm=clip_norm)
    push(sync, 0, 0, finite=False)
    assert push(sync, 0, 1) == [CloseRound(0, (0, 1), scale=1.0, apply=False)]
    assert (sync.skipped_rounds, sync.applied_rows, sync.dropped_rows) == (1, 0, 16)


def test_a_gradient_that_is_not_finite_ends_the_training_and_names_its_workers() -> None:
    sync = rounds(start=12)
    push(sync, 12, 0)
    (spoiled,) = push(sync, 12, 1, finite=False)
    assert isinstance(spoiled, Spoiled)
    assert spoiled == Spoiled(12, (1,))
    assert "round 12 is not finite (worker 1)" in spoiled.message


def test_the_gradient_of_one_that_is_late_may_be_anything() -> None:
    sync = rounds(backup=1)
    sync.staged(0, 0, 0, 8, False)
    assert push(sync, 0, 1) == [CloseRound(0, (1,), scale=1.0, apply=True)]


def asked(clip_norm: float = 1.0, **settings: Any) -> Rounds:
    """Rounds of two workers that wait for the sums of two shards."""
    sync = rounds(clip_norm=clip_norm, **settings)
    push(sync, 0, 1)
    assert push(sync, 0, 0) == [AskNorm(0, (0, 1))]
    assert sync.current == 0
    return sync


def test_the_norm_over_all_shards_is_clipped() -> None:
    sync = asked(clip_norm=2.5)
    assert sync.summed(0, 1, 9.0) == []
    (commit,) = sync.summed(0, 0, 16.0)
    assert commit == CloseRound(0, (0, 1), scale=2.5 / (5.0 + 1e-6), apply=True)


def test_a_small_norm_is_left_alone() -> None:
    sync = asked(clip_norm=5.1)
    sync.summed(0, 0, 9.0)
    assert sync.summed(0, 1, 16.0) == [CloseRound(0, (0, 1), scale=1.0, apply=True)]


def test_the_scale_does_not_depend_on_which_shard_answers_first() -> None:
    squares = [1e16] + [1.0] * 60  # their sum in floating point does
    scales = set()
    for order in (range(61), reversed(range(61))):
        sync = rounds(workers=1, shards=61, clip_norm=1.0)
        push(sync, 0, 0, shards=61)
        (commit,) = [d for shard in order for d in sync.summed(0, shard, squares[shard])]
        assert isinstance(commit, CloseRound)
        scales.add(commit.scale)
    assert len(scales) == 1


@pytest.mark.parametrize("square", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_spoils_the_round_as_a_gradient_does(square: float) -> None:
    skip, fail = asked(non_finite="skip"), asked(non_finite="fail")
    for sync in (skip, fail):
        sync.summed(0, 0, square)
    assert skip.summed(0, 1, 1.0) == [CloseRound(0, (0, 1), scale=1.0, apply=False)]
    assert fail.summed(0, 1, 1.0) == [Spoiled(0, (0, 1))]
    assert fail.summed(0, 1, 1.0) == []


def test_nobody_joins_a_round_while_its_norm_is_summed() -> None:
    sync = rounds(workers=3, backup=1, clip_norm=1.0)
    push(sync, 0, 0)
    assert push(sync, 0, 2) == [AskNorm(0, (0, 2))]
    assert push(sync, 0, 1) == []
    sync.summed(0, 0, 1.0)
    (commit,) = sync.summed(0, 1, 1.0)
    assert isinstance(commit, CloseRound)
    assert commit.members == (0, 2)
    assert sync.late == 1


@pytest.mark.parametrize(
    "report",
    [(1, 0, 0, 8, True), (0, 2, 0, 8, True), (0, -1, 0, 8, True), (0, 0, 2, 8, True)],
    ids=["future round", "unknown worker", "negative worker", "unknown shard"],
)
def test_a_report_that_cannot_be_is_refused(report: tuple[int, int, int, int, bool]) -> None:
    sync = rounds()
    with pytest.raises(ProtocolError, match=r"does not fit: round 0 is open"):
        sync.staged(*report)


def test_a_sum_that_was_not_asked_for_is_refused() -> None:
    for sync in (rounds(), rounds(clip_norm=1.0)):
        with pytest.raises(ProtocolError, match="does not fit"):
            sync.summed(0, 0, 1.0)


# A whole parameter server in random order: every worker has a queue to every shard, every shard
# one to the coordinator (which may deliver twice) and one from it.

LAST = 6


@dataclass
class Shard:
    """Stages what workers push and does what it is told; `log` is what it has done."""

    number: int
    round: int = 0
    staged: dict[int, float] = field(default_factory=dict)
    log: list[CloseRound] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)

    def push(self, number: int, worker: int, gradient: float) -> None:
        assert number <= self.round
        if number == self.round:
            self.staged[worker] = gradient

    def squares(self, ask: AskNorm) -> float:
        assert ask.round == self.round
        return sum(self.staged[worker] for worker in ask.members) ** 2

    def commit(self, commit: CloseRound) -> None:
        assert commit.round == self.round
        assert set(commit.members) <= set(self.staged)
        self.log.append(commit)
        self.applied += [(commit.round, worker) for worker in commit.members if commit.apply]
        self.staged, self.round = {}, self.round + 1


@dataclass
class Worker:
    """Computes a gradient, pushes it, and goes on where all shards are, once they are past it."""

    number: int
    speed: float
    round: int = -1
    computing: bool = False
    dies_in: int = LAST


class Simulation:
    """`reports` is what the coordinator has heard, in this order."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        n, s = chance.randint(1, 5), chance.randint(1, 3)
        self.backup = chance.randint(0, n - 1)
        self.clip_norm = chance.choice([None, 1.0])
        self.workers = [Worker(w, chance.choice([0.05, 1.0, 1.0])) for w in range(n)]
        for worker in chance.sample(self.workers, chance.randint(0, self.backup)):
            worker.dies_in = chance.randrange(LAST)
        self.shards = [Shard(number) for number in range(s)]
        self.rounds = self.fresh()
        self.pushes: dict[tuple[int, int], deque[Any]] = {
            (w, shard): deque() for w in range(n) for shard in range(s)
        }
        self.inbox: list[deque[Any]] = [deque() for _ in range(s)]
        self.outbox: list[deque[Decision]] = [deque() for _ in range(s)]
        self.reports: list[tuple[str, tuple[Any, ...]]] = []
        self.pushed: set[tuple[int, int]] = set()

    def fresh(self) -> Rounds:
        n, s = len(self.workers), len(self.shards)
        return rounds(n, s, self.backup, self.clip_norm, "skip")

    def run(self) -> None:
        """Until nothing is left to happen."""
        while moves := self.moves():
            kind, *which = self.chance.choices(*zip(*moves, strict=True))[0]
            getattr(self, kind)(*which)

    def moves(self) -> list[tuple[Any, float]]:
        return [
            *((("begin", w), 1.0) for w in self.workers if self.may_begin(w)),
            *((("finish", w), w.speed) for w in self.workers if w.computing),
            *((("arrive", *key), 1.0) for key, queue in self.pushes.items() if queue),
            *((("hear", shard), 1.0) for shard, queue in enumerate(self.inbox) if queue),
            *((("obey", shard), 1.0) for shard, queue in enumerate(self.outbox) if queue),
        ]

    def may_begin(self, worker: Worker) -> bool:
        alive = worker.round < worker.dies_in
        return alive and not worker.computing and worker.round < self.past < LAST

    @property
    def past(self) -> int:
        return min(shard.round for shard in self.shards)

    def begin(self, worker: Worker) -> None:
        worker.round, worker.computing = self.past, True

    def finish(self, worker: Worker) -> None:
        """Push to all shards, or only to some and be gone."""
        worker.computing = False
        dies = worker.round >= worker.dies_in
        reached = self.chance.randrange(len(self.shards)) if dies else len(self.shards)
        gradient = self.chance.choice([0.1, 0.5, 3.0, 1.0 if worker.round % 3 else math.nan])
        for shard in self.chance.sample(range(len(self.shards)), reached):
            self.pushes[worker.number, shard].append((worker.round, gradient))
            self.pushed.add((worker.round, worker.number))

    def arrive(self, worker: int, shard: int) -> None:
        number, gradient = self.pushes[worker, shard].popleft()
        self.shards[shard].push(number, worker, gradient)
        finite = math.isfinite(gradient)
        self.inbox[shard].append(("staged", (number, worker, shard, 8, finite, self.planned)))

    def hear(self, shard: int) -> None:
        """The coordinator takes a report; sometimes it comes again, then or later."""
        report = self.inbox[shard].popleft()
        if self.chance.random() < 0.1:
            self.inbox[shard].insert(self.chance.randint(0, len(self.inbox[shard])), report)
        self.reports.append(report)
        kind, fields = report
        for decision in getattr(self.rounds, kind)(*fields):
            for queue in self.outbox:
                queue.append(decision)

    def obey(self, shard: int) -> None:
        decision = self.outbox[shard].popleft()
        if isinstance(decision, CloseRound):
            self.shards[shard].commit(decision)
        elif isinstance(decision, AskNorm):
            squares = self.shards[shard].squares(decision)
            self.inbox[shard].append(("summed", (decision.round, shard, squares)))

    @property
    def planned(self) -> int:
        return 8 * len(self.workers)


@pytest.fixture(scope="module")
def simulations() -> list[Simulation]:
    """Parameter servers that have come to rest."""
    worlds = [Simulation(seed) for seed in range(600)]
    for world in worlds:
        world.run()
    return worlds


def test_every_round_is_closed_though_workers_straggle_and_die(
    simulations: list[Simulation],
) -> None:
    for world in simulations:
        assert [shard.round for shard in world.shards] == [LAST] * len(world.shards)
        assert world.rounds.current == LAST


def test_all_shards_apply_the_same_gradients(simulations: list[Simulation]) -> None:
    for world in simulations:
        first, *others = world.shards
        assert all(shard.log == first.log for shard in others)
        assert all(shard.applied == first.applied for shard in others)
        assert [commit.round for commit in first.log] == list(range(LAST))


def test_no_gradient_is_applied_twice(simulations: list[Simulation]) -> None:
    for world in simulations:
        applied = world.shards[0].applied
        assert len(set(applied)) == len(applied)


def test_every_round_has_all_workers_but_the_backup_workers(simulations: list[Simulation]) -> None:
    for world in simulations:
        least = len(world.workers) - world.backup
        assert all(len(commit.members) >= least for commit in world.shards[0].log)


def test_every_gradient_is_a_member_or_late(simulations: list[Simulation]) -> None:
    for world in simulations:
        members = {(c.round, worker) for c in world.shards[0].log for worker in c.members}
        assert members <= world.pushed
        assert world.rounds.late == len(world.pushed - members)


def test_every_planned_row_is_applied_or_dropped(simulations: list[Simulation]) -> None:
    for world in simulations:
        done = world.rounds
        assert done.applied_rows == 8 * len(world.shards[0].applied)
        assert done.applied_rows + done.dropped_rows == LAST * world.planned


def test_duplicated_reports_change_nothing(simulations: list[Simulation]) -> None:
    for world in simulations:
        once = world.fresh()
        decisions: list[Decision] = []
        for kind, fields in dict.fromkeys(world.reports):
            decisions += getattr(once, kind)(*fields)
        assert [d for d in decisions if isinstance(d, CloseRound)] == world.shards[0].log
        assert totals(once) == totals(world.rounds)
