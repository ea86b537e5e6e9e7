from typing import Any

import pytest
from fake_stage import FakeStage, job_settings, spec

from flambeau.config import Hybrid, ParameterServer
from flambeau.coordination.protocol import Report, ShardJoined, Stop
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.coordination.round_messages import Commit, NormReply, NormRequest, Staged
from flambeau.coordination.step_sums import StepSums
from flambeau.coordination.task_messages import StopRequest
from flambeau.driver.coordinators import PROGRESS_SECONDS, PassiveCoordinator, RoundCoordinator


class Job:
    """Two workers and two shards in rounds; the test speaks for the shards."""

    def __init__(
        self,
        *,
        workers: int = 2,
        tells_progress: bool = True,
        strategy: Any = None,
        **settings: Any,
    ) -> None:
        self.stage = FakeStage(workers)
        strategy = strategy or ParameterServer(servers=2)
        self.rounds = RoundCoordinator(
            job_settings(workers, strategy, **settings), tells_progress=tells_progress
        )
        self.rounds.attach(self.stage)
        self.begin(0)

    def begin(self, generation: int) -> None:
        self.generation = generation
        self.rounds.begin(generation)
        for shard in (0, 1):
            self.say(ShardJoined(self.shard(shard)), b"shard-%d" % shard)

    def shard(self, index: int) -> RoleSpec:
        return RoleSpec(Role.SERVER, index, 2, 0, 1, 0, self.generation)

    def say(self, message: Any, peer: bytes = b"peer") -> None:
        self.rounds.handle(peer, message, ())

    def stage_gradient(
        self, worker: int, round: int = 0, *, rows: int = 4, planned: int = 8, finite: bool = True
    ) -> None:
        """A worker's gradient is on both shards."""
        for shard in (0, 1):
            self.say(Staged(shard, self.generation, round, worker, rows, planned, finite))

    def said(self) -> list[tuple[bytes, Any]]:
        """What the shards were told since the last time."""
        said, self.stage.sent_to_peers = self.stage.sent_to_peers, []
        return said


def to_both(message: Any) -> list[tuple[bytes, Any]]:
    return [(b"shard-0", message), (b"shard-1", message)]


def test_time_may_pass_before_agents_are_there() -> None:
    rounds = RoundCoordinator(job_settings(2, ParameterServer(servers=2)), tells_progress=True)
    rounds.tick(1e9)
    assert rounds.summary() == {}


def test_a_round_is_committed_on_all_shards_when_all_gradients_are_there() -> None:
    job = Job()
    job.stage_gradient(1)
    assert not job.said()
    job.stage_gradient(0)
    assert job.said() == to_both(Commit(0, [0, 1], 1.0, True, False, 0))


def test_a_round_with_a_backup_worker_does_not_wait_for_the_slowest() -> None:
    job = Job(strategy=ParameterServer(servers=2, backup_workers=1))
    job.stage_gradient(1)
    assert job.said() == to_both(Commit(0, [1], 1.0, True, False, 4))
    job.stage_gradient(0)
    assert not job.said()
    assert job.rounds.summary() == {"skipped_rounds": 0, "late_gradients": 1}


def test_a_norm_is_clipped_over_all_shards() -> None:
    job = Job(compute={"clip_norm": 1.0})
    job.stage_gradient(0)
    job.stage_gradient(1)
    assert job.said() == to_both(NormRequest(0, [0, 1]))
    for shard, squares in enumerate((7.0, 9.0)):
        job.say(NormReply(shard, 0, 0, squares))
    ((_, first), (_, second)) = job.said()
    assert first == second
    assert first.scale == pytest.approx(0.25)


def test_a_gradient_that_is_not_finite_ends_the_job() -> None:
    job = Job()
    job.stage_gradient(0)
    job.stage_gradient(1, finite=False)
    assert not job.said()
    (text,) = job.stage.failures
    assert "round 0 is not finite (worker 1)" in text


def test_or_its_round_is_left_out() -> None:
    job = Job(strategy=ParameterServer(servers=2, non_finite="skip"))
    job.stage_gradient(0)
    job.stage_gradient(1, finite=False)
    assert job.said() == to_both(Commit(0, [0, 1], 1.0, False, False, 8))
    assert not job.stage.failures
    assert job.rounds.summary()["skipped_rounds"] == 1


def test_the_servers_of_a_hybrid_go_in_rounds_as_well() -> None:
    job = Job(strategy=Hybrid(servers=2, consistency="synchronous"))
    job.stage_gradient(0)
    job.stage_gradient(1)
    assert job.said() == to_both(Commit(0, [0, 1], 1.0, True, False, 0))


@pytest.mark.parametrize("who", ["the driver", "a callback"])
def test_a_stop_comes_with_the_next_round(who: str) -> None:
    job = Job()
    if who == "the driver":
        job.rounds.stop()
    else:
        job.say(StopRequest(spec(1)))
    assert not job.stage.sent
    job.stage_gradient(0)
    job.stage_gradient(1)
    assert job.said() == to_both(Commit(0, [0, 1], 1.0, True, True, 0))


def test_rounds_go_on_from_where_a_checkpoint_was() -> None:
    job = Job()
    job.stage_gradient(0, round=7)
    job.stage_gradient(1, round=7)
    assert job.said() == to_both(Commit(7, [0, 1], 1.0, True, False, 0))


def test_the_words_of_an_older_generation_count_for_nothing() -> None:
    job = Job()
    job.stage_gradient(0)
    old = job.shard(0)
    job.begin(1)
    job.say(ShardJoined(old), b"old")
    job.say(Staged(0, 0, 0, 0, 4, 8, True))
    job.say(NormReply(0, 0, 0, 1.0))
    job.stage_gradient(0, round=3)
    job.stage_gradient(1, round=3)
    assert job.said() == to_both(Commit(3, [0, 1], 1.0, True, False, 0))


def test_there_is_nothing_to_report_before_the_first_round() -> None:
    assert Job().rounds.summary() == {}


# Progress


def pulse(job: Job, rank: int, **fields: Any) -> None:
    known = {
        "step": 10,
        "sums": StepSums(8.0, 4, 2, 2.0, 0.5, 0.5).numbers(),
        "epoch": 1,
        "steps_total": 90,
        "position_rows": 80,
        "lr": 0.1,
    }
    job.say(Report(spec(rank), "pulse", {**known, **fields}))


def test_the_pulses_of_all_workers_are_one_progress() -> None:
    job = Job()
    start = job.rounds._told
    pulse(job, 0)
    sums = StepSums(4.0, 4, 2, 2.0, 0.5, 1.5).numbers()
    pulse(job, 1, step=11, position_rows=88, sums=sums)
    job.rounds.tick(start + 2.0)
    assert job.stage.told == [
        (
            "progress",
            {
                "step": 11,
                "epoch": 1,
                "steps_total": 90,
                "rows": 88,
                "rows_per_second": 4.0,
                "loss": 1.5,
                "lr": 0.1,
                "data_seconds": 0.25,
                "compute_seconds": 0.25,
                "communication_seconds": 0.5,
            },
        )
    ]


def test_a_slow_worker_does_not_take_the_progress_back() -> None:
    job = Job()
    pulse(job, 0, step=12)
    pulse(job, 1, step=10)
    job.rounds.tick(job.rounds._told + 2.0)
    assert job.stage.told[0][1]["step"] == 12


def test_progress_is_told_at_most_twice_a_second() -> None:
    job = Job()
    pulse(job, 0)
    job.rounds.tick(job.rounds._told + PROGRESS_SECONDS / 2)
    assert not job.stage.told


def test_nothing_new_is_not_told() -> None:
    job = Job()
    pulse(job, 0)
    job.rounds.tick(job.rounds._told + 2.0)
    job.rounds.tick(job.rounds._told + 2.0)
    assert len(job.stage.told) == 1


def test_where_workers_tell_progress_the_coordinator_does_not() -> None:
    job = Job(tells_progress=False)
    pulse(job, 0)
    job.rounds.tick(job.rounds._told + 2.0)
    assert not job.stage.told


# Without the coordinator


def test_workers_that_agree_among_themselves_are_all_asked_to_stop() -> None:
    stage = FakeStage(3)
    coordinator = PassiveCoordinator()
    coordinator.attach(stage)
    coordinator.stop()
    assert [(to.rank, message) for to, message, _ in stage.sent] == [
        (0, Stop()),
        (1, Stop()),
        (2, Stop()),
    ]
