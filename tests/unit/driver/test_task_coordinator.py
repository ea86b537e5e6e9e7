from typing import Any

import pytest
from fake_stage import FakeStage, job_settings, spec

from flambeau.config import ParameterServer
from flambeau.coordination.roles import Role
from flambeau.coordination.task_messages import (
    Assigned,
    Contribution,
    Gathered,
    PlanData,
    SlowestClock,
    StepGrant,
    StopRequest,
    SyncPoint,
    SyncPointDone,
    TaskRequest,
    Trained,
)
from flambeau.coordination.tasks import Homes, Task
from flambeau.driver.coordinators import PROGRESS_SECONDS
from flambeau.driver.task_coordinator import TaskCoordinator
from flambeau.errors import ProtocolError

BATCH = 4


#: What the first worker knows of its milestones when it begins.
PROGRESS = {"metrics": {"auc": 0.25}, "saved": None}


class Job:
    """Asynchronous workers whose every word is said by the test."""

    def __init__(
        self, workers: int = 2, consistency: Any = "asynchronous", **settings: Any
    ) -> None:
        strategy = ParameterServer(consistency=consistency)
        settings = {"batch_size": BATCH, **settings}
        self.stage = FakeStage(workers)
        self.free = TaskCoordinator(job_settings(workers, strategy, **settings))
        self.free.attach(self.stage)
        self.free.begin(0)

    def say(self, message: Any, *buffers: bytes) -> None:
        self.free.handle(b"peer", message, buffers)

    def plan(self, rows: int = 8, kind: Any = "rows", state: dict[str, Any] | None = None) -> "Job":
        sizes = [len(self.stage.members)] if kind == "shares" else [rows]
        self.say(PlanData(self.stage.members[0], kind, sizes, state, None, PROGRESS))
        return self

    def begun(self, rows: int = 8, **plan: Any) -> "Job":
        """After the first moment, which saves the beginning."""
        self.plan(rows, **plan)
        self.meet()
        return self

    def sync_point(self, rank: int = 0) -> SyncPoint | None:
        """The last moment that a worker was called to."""
        called: list[SyncPoint] = self.stage.heard(rank, SyncPoint)
        return called[-1] if called else None

    def meet(self, *ranks: int, stop: bool = False, progress: Any = None) -> SyncPoint:
        """All workers, or some, do what they were called for."""
        sync_point = self.free._sync_point
        assert sync_point is not None
        for rank in ranks or self.stage.members:
            self.stage.heard(rank, SyncPoint)
            worker = self.stage.members[rank]
            self.say(SyncPointDone(worker, sync_point.number, stop, progress or {}))
        return sync_point

    def want(self, rank: int) -> Task | None:
        assigned = self.ask(rank)
        return assigned.task if assigned is not None else None

    def ask(self, rank: int) -> Assigned | None:
        self.say(TaskRequest(self.stage.members[rank]))
        return self.assigned(rank)

    def assigned(self, rank: int) -> Assigned | None:
        got: list[Assigned] = self.stage.heard(rank, Assigned)
        assert len(got) <= 1
        return got[0] if got else None

    def train(self, rank: int, task: Task, *batches: int, complete: bool | None = None) -> None:
        """A worker has trained on these batches of a task, by default on all."""
        count = task.batches(BATCH)
        batches = batches or tuple(range(task.first_batch, count))
        rows = [(b, min(BATCH, task.stop - task.start - b * BATCH)) for b in batches]
        done = batches[-1] + 1 == count if complete is None else complete
        worker = self.stage.members[rank]
        self.say(Trained(worker, task.number, task.epoch, rows, 8.0, 1.0, 0.25, 0.5, 0.1, done))

    def train_all(self, rank: int = 0) -> None:
        """One worker does whatever there is, until nothing more is handed out."""
        got = self.assigned(rank) or self.ask(rank)
        while got is not None:
            self.train(rank, got.task)
            got = self.ask(rank)

    def lose(self, rank: int) -> None:
        lost = self.stage.members.pop(rank)
        self.free.lost(lost)

    def dismiss(self, rank: int) -> None:
        """A lost worker will not come back."""
        self.free.dismissed(self.stage.members.pop(rank))

    def replace(self, rank: int) -> None:
        """A new process has taken a lost one's place."""
        world = len(self.stage.members) + 1
        self.stage.members[rank] = spec(rank, world=world, attempt=1)
        self.stage.members = dict(sorted(self.stage.members.items()))
        self.free.joined(self.stage.members[rank])


# Tasks


def test_the_first_moment_saves_the_beginning_before_anything_is_handed_out() -> None:
    job = Job().plan()
    assert job.want(0) is None
    for rank in (0, 1):
        sync_point = job.sync_point(rank)
        assert sync_point is not None
        assert (sync_point.step, sync_point.epoch) == (0, 0)
        assert (sync_point.save, sync_point.evaluate, sync_point.last) == (True, False, False)


def test_who_asked_during_a_moment_gets_a_task_after_it() -> None:
    job = Job().plan()
    job.want(0)
    job.meet(1)
    assert job.assigned(0) is None
    job.meet(0)
    assert job.assigned(0) is not None


def test_a_task_says_how_many_updates_all_have_made() -> None:
    job = Job().begun(rows=40)
    first = job.ask(0)
    assert first is not None
    assert first.updates == 0
    job.train(0, first.task)
    second = job.ask(1)
    assert second is not None
    assert second.updates == first.task.batches(BATCH)


def test_who_asked_before_there_was_a_plan_gets_a_task_later() -> None:
    job = Job()
    job.want(1)
    job.begun()
    assert job.assigned(1) is not None


def test_every_task_is_handed_out_once() -> None:
    job = Job().begun(rows=16)
    first, second = job.want(0), job.want(1)
    assert first is not None
    assert second is not None
    assert first.number != second.number


def test_all_rows_are_counted_once() -> None:
    job = Job(epochs=2).begun(rows=18)
    job.train_all(0)
    job.meet()
    job.train_all(0)
    assert job.free.rows() == {"read": 36, "applied": 36, "dropped": 0, "repeated": 0}
    assert job.free.summary()["step"] == 2 * 5


def test_rows_that_are_left_out_are_counted_on_their_own() -> None:
    job = Job(workers=1).begun(rows=BATCH)
    got = job.ask(0)
    assert got is not None
    worker, task = job.stage.members[0], got.task
    said = (worker, task.number, task.epoch, [(0, BATCH - 1)], 8.0, 1.0, 0.25, 0.5, 0.1, True, [])
    job.say(Trained(*said, {0: 1}))
    counts = {"read": BATCH, "applied": BATCH - 1, "dropped": 0, "repeated": 0, "left_out": 1}
    assert job.free.rows() == counts


def test_the_rows_are_not_known_before_there_is_a_plan() -> None:
    assert Job().free.rows() is None


def test_a_single_shard_gives_all_workers_something_to_do() -> None:
    job = Job(loading={"shuffle": False})
    job.say(PlanData(spec(0), "shards", [16 * BATCH], None))
    job.meet()
    tasks = [job.want(rank % 2) for rank in range(8)]
    places = [(task.start // BATCH, task.stop // BATCH) for task in tasks if task]
    assert places == [(start, start + 2) for start in range(0, 16, 2)]
    assert not job.stage.told


@pytest.mark.parametrize(
    ("rows", "homes", "text"),
    [
        (
            [2 * BATCH],
            None,
            "1 worker has no rows to train on: there are fewer batches of 4 rows than workers. "
            "Use fewer workers, a smaller batch_size or more data",
        ),
        (
            [99, 99],
            Homes([1, 1], [0, 1, 2]),
            "2 workers have no rows to train on: the cluster has brought them no rows of the "
            "data frame. Repartition it",
        ),
    ],
)
def test_workers_that_get_nothing_are_warned_of(
    rows: list[int], homes: Homes | None, text: str
) -> None:
    job = Job(workers=3)
    job.say(PlanData(spec(0), "shards", rows, None, homes))
    assert job.stage.told == [("warning", {"text": text})]


def test_a_plan_that_comes_again_changes_nothing() -> None:
    job = Job().begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.plan(rows=16)
    job.train(0, task)
    assert job.free._sync_point is None
    assert job.free.rows() == {"read": 4, "applied": 4, "dropped": 0, "repeated": 0}


# Iterators


def test_an_iterator_has_a_share_for_each_worker_that_ends_when_it_says_so() -> None:
    job = Job().begun(kind="shares")
    tasks = [job.want(0), job.want(1)]
    assert [task.number for task in tasks if task] == [0, 1]
    for rank, task in enumerate(tasks):
        assert task is not None
        job.train(rank, task, 0, 1, complete=False)
        assert job.free._sync_point is None
        job.train(rank, task, 2, complete=True)
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.step, sync_point.last) == (6, True)


def test_an_iterator_that_gave_nothing_ends_as_well() -> None:
    job = Job(workers=1).begun(kind="shares")
    task = job.want(0)
    assert task is not None
    job.say(Trained(spec(0, world=1), task.number, 0, [], 0.0, 0.0, 0.0, 0.0, 0.0, True))
    sync_point = job.sync_point()
    assert sync_point is not None
    assert sync_point.last


def test_the_length_of_an_iterator_is_not_known() -> None:
    job = Job(workers=1).begun(kind="shares")
    task = job.want(0)
    assert task is not None
    job.train(0, task, 0, complete=False)
    job.free.tick(job.free._told + PROGRESS_SECONDS)
    assert job.stage.told[-1][1]["steps_total"] is None


def test_a_task_that_ends_too_soon_is_an_error() -> None:
    job = Job(workers=1).begun(rows=64)
    task = job.want(0)
    assert task is not None
    assert task.batches(BATCH) > 1
    with pytest.raises(ProtocolError, match="has ended task 0"):
        job.train(0, task, 0, complete=True)


# Moments


def test_an_epoch_ends_with_a_moment_that_evaluates_and_saves() -> None:
    job = Job(epochs=2).begun(rows=8)
    job.train_all()
    sync_point = job.sync_point(1)
    assert sync_point is not None
    assert (sync_point.step, sync_point.epoch) == (2, 1)
    assert (sync_point.evaluate, sync_point.save, sync_point.last) == (True, True, False)


def test_the_last_epoch_ends_with_the_last_moment() -> None:
    job = Job().begun()
    job.train_all()
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.evaluate, sync_point.save, sync_point.last) == (True, True, True)


def test_after_the_last_moment_nothing_is_handed_out() -> None:
    job = Job().begun()
    job.train_all()
    job.meet()
    assert job.want(0) is None
    job.free.stop()
    assert job.sync_point() is None


def test_epochs_without_anything_due_follow_each_other() -> None:
    rarely = {"every_epochs": 2}
    job = Job(epochs=2, evaluation=rarely, checkpoints=rarely).begun(rows=8)
    first = [job.want(0), job.want(1)]
    for rank, task in enumerate(first):
        assert task is not None
        job.train(rank, task)
    assert job.free._sync_point is None
    task = job.want(0)
    assert task is not None
    assert task.epoch == 1


@pytest.mark.parametrize(("part", "what"), [("evaluation", "evaluate"), ("checkpoints", "save")])
def test_something_is_due_every_few_steps(part: str, what: str) -> None:
    job = Job(workers=1, **{part: {"every_steps": 3, "every_epochs": None}}).begun(rows=28)
    at = []
    while job.free.summary()["step"] < 7:
        if job.free._sync_point is not None:
            at.append(job.meet())
            assert getattr(at[-1], what)
        task = job.want(0)
        assert task is not None
        job.train(0, task)
    assert [sync_point.step for sync_point in at] == [3, 6]


def test_a_report_of_many_steps_is_one_moment() -> None:
    job = Job(workers=1, evaluation={"every_steps": 2}).begun(rows=4 * BATCH * 8)
    task = job.want(0)
    assert task is not None
    assert task.batches(BATCH) == 8
    job.train(0, task)
    assert job.meet().step == 8
    assert job.free._sync_point is None


def test_the_plan_of_a_moment_is_what_is_left_to_do() -> None:
    job = Job(workers=1, checkpoints={"every_steps": 1}).begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.train(0, task)
    sync_point = job.sync_point()
    assert sync_point is not None
    assert sync_point.plan["step"] == 1
    assert [number for _, number, *_ in sync_point.plan["plan"]["tasks"]] == [1, 2, 3]
    assert sync_point.plan["plan"]["rows"]["applied"] == 4


def test_only_the_first_worker_which_saves_is_sent_the_plan() -> None:
    job = Job().plan()
    first, second = job.sync_point(0), job.sync_point(1)
    assert first is not None
    assert second is not None
    assert first.plan["plan"]["tasks"]
    assert (second.number, second.plan) == (first.number, {})


def test_max_steps_end_the_training_with_an_evaluation() -> None:
    job = Job(max_steps=2).begun(rows=64)
    for rank in (0, 1):
        task = job.want(rank)
        assert task is not None
        job.train(rank, task, 0)
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.step, sync_point.evaluate, sync_point.save, sync_point.last) == (
        2,
        True,
        True,
        True,
    )
    assert not sync_point.stops


def granted(job: Job, rank: int) -> int:
    """Steps that a worker has been granted since it was last asked."""
    return sum(message.steps for message in job.stage.heard(rank, StepGrant))


def test_workers_are_granted_the_steps_that_are_left() -> None:
    job = Job(max_steps=8).begun(rows=160)
    for rank in (0, 1):
        job.want(rank)
    assert [granted(job, rank) for rank in (0, 1)] == [2, 1]


def test_without_max_steps_nothing_needs_to_be_granted() -> None:
    job = Job().begun(rows=64)
    job.want(0)
    assert not job.stage.heard(0, StepGrant)


def test_steps_of_a_worker_without_data_go_to_the_others() -> None:
    job = Job(max_steps=3).begun(rows=12)
    one, other = job.want(0), job.want(1)
    assert one is not None
    assert other is not None
    assert [granted(job, rank) for rank in (0, 1)] == [1, 1]
    job.train(0, one)
    job.want(0)
    assert granted(job, 0) == 1
    job.train(1, other)
    assert job.want(1) is None
    assert granted(job, 1) == 0


def test_steps_of_a_lost_worker_go_to_the_others() -> None:
    job = Job(max_steps=2).begun(rows=64)
    task = job.want(0)
    assert task is not None
    job.want(1)
    assert [granted(job, rank) for rank in (0, 1)] == [1, 1]
    job.train(0, task, 0)
    job.lose(1)
    assert granted(job, 0) == 1


def test_nobody_waits_for_a_worker_without_steps() -> None:
    job = Job(consistency="bounded", max_steps=2).begun(rows=64)
    task = job.want(0)
    assert task is not None
    job.want(1)
    job.train(0, task, 0)
    assert 0 not in job.free._clocks
    job.lose(1)
    assert job.stage.heard(0, StepGrant)[-1].clock == job.free._clocks[0]


@pytest.mark.parametrize("who", ["the driver", "a callback"])
def test_a_stop_saves_without_evaluating(who: str) -> None:
    job = Job().begun(rows=64)
    if who == "the driver":
        job.free.stop()
    else:
        job.say(StopRequest(spec(1)))
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.evaluate, sync_point.save, sync_point.last) == (False, True, True)
    assert sync_point.stops


def test_a_stop_before_there_is_a_plan_waits_for_it() -> None:
    job = Job()
    job.free.stop()
    job.begun()
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.save, sync_point.last) == (True, True)


def test_a_worker_that_has_enough_ends_the_training_early_and_no_task_is_handed_out() -> None:
    job = Job(epochs=5).begun()
    job.train_all()
    job.want(0)
    job.meet(1)
    job.meet(0, stop=True)
    sync_point = job.sync_point()
    assert sync_point is not None
    assert sync_point.last
    assert job.assigned(0) is None


def test_the_word_on_another_moment_counts_for_nothing() -> None:
    job = Job().plan()
    job.say(SyncPointDone(spec(0), 7, False, {}))
    job.meet(1)
    assert job.free._sync_point is not None


def test_what_the_first_worker_knew_travels_with_the_next_moment() -> None:
    job = Job(epochs=2).plan()
    job.meet(0, progress={"metrics": {"auc": 0.5}})
    job.meet(1, progress={"metrics": {}})
    job.train_all()
    sync_point = job.sync_point()
    assert sync_point is not None
    assert sync_point.progress == {"metrics": {"auc": 0.5}}


# Lost workers


def test_a_replacement_gets_what_the_first_worker_knew_with_its_first_task() -> None:
    job = Job(epochs=2).plan(rows=32)
    job.meet(0, progress={"metrics": {"auc": 0.5}})
    job.meet(1)
    job.lose(1)
    job.replace(1)
    first = job.ask(1)
    assert first is not None
    assert first.progress == {"metrics": {"auc": 0.5}}
    job.train(1, first.task)
    second = job.ask(1)
    assert second is not None
    assert second.progress == {}


def test_a_lost_workers_task_goes_on_where_it_had_come_to() -> None:
    job = Job().begun(rows=64)
    task = job.want(0)
    assert task is not None
    job.train(0, task, 0)
    job.lose(0)
    again = job.want(1)
    assert again is not None
    assert (again.number, again.first_batch) == (task.number, 1)


def test_an_idle_worker_gets_the_lost_ones_task() -> None:
    job = Job().begun(rows=4)
    task = job.want(0)
    assert job.want(1) is None
    job.lose(0)
    got = job.assigned(1)
    assert got is not None
    assert got.task == task


def test_a_worker_lost_before_there_was_a_plan_gets_no_task() -> None:
    job = Job()
    job.want(1)
    job.lose(1)
    job.replace(1)
    job.begun(rows=8)
    tasks = [job.want(0), job.want(1)]
    assert [task.number for task in tasks if task] == [0, 1]


def test_a_lost_server_takes_no_task_away() -> None:
    job = Job().begun(rows=8)
    job.want(0)
    job.free.lost(spec(0, Role.SERVER))
    task = job.want(1)
    assert task is not None
    assert task.number == 1


def test_a_replacement_is_called_to_the_moment_that_is_under_way() -> None:
    job = Job().plan()
    job.meet(1)
    job.lose(1)
    job.replace(1)
    assert job.sync_point(1) is not None
    job.meet(0)
    assert job.free._sync_point is not None
    job.meet(1)
    assert job.free._sync_point is None


def test_who_is_lost_after_it_has_met_holds_nobody_up() -> None:
    job = Job().plan()
    job.meet(1)
    job.lose(1)
    job.meet(0)
    assert job.free._sync_point is None


def test_between_sync_points_a_replacement_is_called_to_none() -> None:
    job = Job().begun()
    job.lose(1)
    job.replace(1)
    assert job.sync_point(1) is None


def test_one_lost_after_the_last_moment_is_called_to_it_again() -> None:
    job = Job().begun()
    job.train_all()
    number = job.free._sync_points - 1
    for rank in (0, 1):
        job.say(Contribution(job.stage.members[rank], f"{number}/0"), b"%d" % rank)
    job.meet()
    job.lose(0)
    job.replace(0)
    sync_point = job.sync_point(0)
    assert sync_point is not None
    assert (sync_point.number, sync_point.last) == (number, True)
    job.say(Contribution(job.stage.members[0], f"{number}/0"), b"0")
    assert job.stage.heard(0, Gathered)[-1] == Gathered(f"{number}/0")


# Exchanges


def gathered(job: Job, rank: int) -> list[list[bytes]]:
    return [
        list(parts)
        for to, message, parts in job.stage.sent
        if to.rank == rank and isinstance(message, Gathered)
    ]


def test_an_exchange_gives_everybodys_parts_by_rank_to_all() -> None:
    job = Job().plan()
    job.say(Contribution(spec(1), "0/0"), b"one")
    assert not gathered(job, 1)
    job.say(Contribution(spec(0), "0/0"), b"zero")
    assert gathered(job, 0) == gathered(job, 1) == [[b"zero", b"one"]]


def test_a_replacement_that_repeats_an_exchange_gets_what_the_others_got() -> None:
    job = Job().plan()
    job.say(Contribution(spec(0), "0/0"), b"zero")
    job.say(Contribution(spec(1), "0/0"), b"one")
    job.lose(1)
    job.replace(1)
    job.stage.sent.clear()
    job.say(Contribution(job.stage.members[1], "0/0"), b"other")
    assert gathered(job, 1) == [[b"zero", b"one"]]
    assert not gathered(job, 0)


def test_a_replacement_completes_an_exchange_that_was_open() -> None:
    job = Job().plan()
    job.say(Contribution(spec(1), "0/0"), b"lost")
    job.lose(1)
    job.replace(1)
    job.say(Contribution(job.stage.members[1], "0/0"), b"new")
    job.say(Contribution(spec(0), "0/0"), b"zero")
    assert gathered(job, 0) == [[b"zero", b"new"]]


def test_after_the_loss_of_a_server_all_is_saved_soon() -> None:
    job = Job(workers=1).begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.free.lost(spec(0, Role.SERVER))
    job.train(0, task)
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.save, sync_point.evaluate, sync_point.last) == (True, False, False)
    job.meet()
    task = job.want(0)
    assert task is not None
    job.train(0, task)
    assert job.sync_point() is None


def updates_lost(job: Job) -> int:
    count: int = job.free.summary()["updates_lost"]
    return count


def trained_on(job: Job, tasks: int) -> Job:
    """The first worker has made an update with each of some tasks of one batch."""
    for _ in range(tasks):
        task = job.want(0)
        assert task is not None
        job.train(0, task)
    return job


def test_updates_since_the_checkpoint_of_a_new_server_are_lost_once() -> None:
    job = trained_on(Job(checkpoints={"every_steps": 2}).begun(rows=32), 2)
    assert job.meet().step == 2
    trained_on(job, 1)
    for rank in (0, 1):
        job.lose(rank)
    for rank in (0, 1):
        job.free.lost(spec(rank, Role.SERVER))
    for rank in (0, 1):
        job.free.replaced(spec(rank, Role.SERVER, attempt=1), "step-00000002")
    job.free.replaced(spec(0, attempt=1), "step-00000002")
    assert updates_lost(job) == 1


def test_updates_that_two_servers_lose_one_after_the_other_are_lost_once() -> None:
    job = trained_on(Job(checkpoints={"every_epochs": None}).begun(rows=32), 3)
    job.free.replaced(spec(0, Role.SERVER, attempt=1), "step-00000000")
    trained_on(job, 2)
    job.free.replaced(spec(1, Role.SERVER, attempt=1), "step-00000000")
    assert updates_lost(job) == 5


def test_updates_made_before_a_worker_met_the_others_are_in_the_checkpoint() -> None:
    job = Job(checkpoints={"every_steps": 1}).begun(rows=32)
    late = job.want(1)
    assert late is not None
    trained_on(job, 1)
    job.train(1, late)
    assert job.meet().step == 1
    job.free.replaced(spec(0, Role.SERVER, attempt=1), "step-00000001")
    assert updates_lost(job) == 0


def test_updates_that_were_lost_before_a_checkpoint_stay_lost_after_it() -> None:
    job = trained_on(Job().begun(rows=32), 1)
    job.free.lost(spec(0, Role.SERVER))
    job.free.replaced(spec(0, Role.SERVER, attempt=1), "step-00000000")
    trained_on(job, 1)
    assert updates_lost(Job().plan(rows=32, state=saved_state(job))) == 1


# Going on


def saved_state(job: Job) -> dict[str, Any]:
    sync_point = job.free._sync_point
    assert sync_point is not None
    return sync_point.plan


def after_one_task(**settings: Any) -> dict[str, Any]:
    job = Job(workers=1, checkpoints={"every_steps": 1}, **settings).begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.train(0, task)
    return saved_state(job)


def test_a_resumed_job_hands_out_what_is_left_at_once() -> None:
    job = Job()
    job.want(1)
    job.plan(rows=16, state=after_one_task())
    got = job.assigned(1)
    assert job.sync_point() is None
    assert got is not None
    assert got.task.number == 1
    assert job.free.summary()["step"] == 1


def test_a_resumed_job_counts_on() -> None:
    job = Job(workers=1).plan(rows=16, state=after_one_task())
    job.train_all()
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.step, sync_point.last) == (4, True)
    assert sync_point.progress == PROGRESS
    rows = job.free.rows()
    assert rows is not None
    assert rows["applied"] == 16


def test_steps_before_the_resume_are_not_due_again() -> None:
    state = after_one_task()
    job = Job(workers=1, checkpoints={"every_steps": 1, "every_epochs": None}, epochs=2)
    job.plan(rows=16, state=state)
    assert job.free._sync_point is None


def finished() -> dict[str, Any]:
    job = Job(workers=1).begun()
    job.train_all()
    return saved_state(job)


def test_a_job_that_was_finished_meets_once_more_and_ends() -> None:
    sync_point = Job().plan(state=finished()).sync_point()
    assert sync_point is not None
    assert (sync_point.step, sync_point.last) == (2, True)


def test_a_job_that_had_stopped_early_ends_as_well() -> None:
    sync_point = Job().plan(rows=16, state={**after_one_task(), "over": True}).sync_point()
    assert sync_point is not None
    assert sync_point.last


def test_a_job_resumed_at_the_end_of_its_last_epoch_trains_no_further() -> None:
    before = Job(workers=1, epochs=3).begun()
    before.train_all()
    job = Job(workers=1, epochs=1).plan(state=saved_state(before))
    sync_point = job.sync_point()
    assert sync_point is not None
    assert (sync_point.step, sync_point.epoch, sync_point.last) == (2, 1, True)
    assert job.want(0) is None


def test_a_finished_job_that_is_given_more_epochs_goes_on_with_the_next() -> None:
    job = Job(epochs=2).plan(state=finished())
    while job.free._sync_point is not None:
        assert not job.meet().last
    task = job.want(0)
    assert task is not None
    assert task.epoch == 1


def test_when_all_start_again_nothing_is_left_of_what_was() -> None:
    job = Job().begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.train(0, task)
    job.want(1)
    job.free.begin(1)
    assert job.free.rows() is None
    job.begun(rows=16)
    assert job.want(0) == task
    assert job.free.summary()["step"] == 0


# Bounded staleness


def test_the_slowest_workers_clock_is_told_to_all_when_it_moves() -> None:
    job = Job(consistency="bounded").begun(rows=128)
    tasks = [job.want(0), job.want(1)]
    assert tasks[0] is not None
    assert tasks[1] is not None
    job.train(0, tasks[0], 0)
    assert not job.stage.heard(1, SlowestClock)
    job.train(1, tasks[1], 0)
    assert [job.stage.heard(rank, SlowestClock) for rank in (0, 1)] == [
        [SlowestClock(1)],
        [SlowestClock(1)],
    ]


def test_without_a_bound_nobody_is_told() -> None:
    job = Job().begun(rows=128)
    task = job.want(0)
    assert task is not None
    job.train(0, task, 0)
    assert not job.stage.heard(0, SlowestClock)


def test_nobody_waits_for_a_worker_that_has_nothing_to_do() -> None:
    job = Job(consistency="bounded", loading={"shuffle": False})
    job.say(PlanData(spec(0), "shards", [4 * BATCH, BATCH], None, Homes([0, 1], [0, 1])))
    job.meet()
    long, short = job.want(0), job.want(1)
    assert long is not None
    assert short is not None
    job.train(1, short)
    assert job.want(1) is None
    job.train(0, long, 0, 1, 2)
    assert job.stage.heard(0, SlowestClock)[-1] == SlowestClock(3)


def test_nobody_waits_for_a_lost_worker() -> None:
    job = Job(consistency="bounded").begun(rows=128)
    tasks = [job.want(0), job.want(1)]
    assert tasks[1] is not None
    job.train(1, tasks[1], 0, 1)
    assert not job.stage.heard(1, SlowestClock)
    job.lose(0)
    assert job.stage.heard(1, SlowestClock) == [SlowestClock(2)]


def test_a_worker_that_comes_back_to_work_starts_at_the_slowest_ones_clock() -> None:
    job = Job(consistency="bounded").begun(rows=128)
    tasks = [job.want(0), job.want(1)]
    assert tasks[0] is not None
    assert tasks[1] is not None
    job.train(0, tasks[0], 0, 1)
    job.train(1, tasks[1], 0, 1, 2)
    job.lose(0)
    job.replace(0)
    got = job.ask(0)
    assert got is not None
    assert got.clock == 3


def test_a_worker_that_has_work_is_not_told_its_clock() -> None:
    job = Job(consistency="bounded", workers=1).begun(rows=128)
    first, second = job.ask(0), job.ask(0)
    assert first is not None
    assert second is not None
    assert (first.clock, second.clock) == (0, None)


# Progress


def test_progress_is_told_now_and_then_with_the_means_of_all() -> None:
    job = Job().begun(rows=16)
    start = job.free._told
    for rank in (0, 1):
        task = job.want(rank)
        assert task is not None
        job.train(rank, task)
    job.free.tick(start + PROGRESS_SECONDS / 2)
    assert not job.stage.told
    job.free.tick(start + 2.0)
    ((kind, fields),) = job.stage.told
    assert kind == "progress"
    assert fields == {
        "step": 2,
        "epoch": 0,
        "steps_total": 4,
        "rows": 8,
        "rows_per_second": 4.0,
        "loss": 2.0,
        "lr": 0.1,
        "data_seconds": 0.25,
        "compute_seconds": 0.25,
        "communication_seconds": 0.5,
    }


def test_nothing_is_told_when_nothing_was_done() -> None:
    job = Job().begun(rows=16)
    job.free.tick(job.free._told + 10.0)
    assert not job.stage.told


def test_max_steps_limit_the_steps_to_be_made() -> None:
    job = Job(workers=1, max_steps=3).begun(rows=16)
    task = job.want(0)
    assert task is not None
    job.train(0, task)
    job.free.tick(job.free._told + 2.0)
    assert job.stage.told[0][1]["steps_total"] == 3


# Workers that nothing replaces


def test_the_others_share_the_tasks_and_meet_without_a_worker_that_nothing_replaces() -> None:
    job = Job(workers=3).begun(rows=24)
    held = job.want(1)
    assert held is not None
    job.dismiss(1)
    assert job.want(0) == held
    job.train(0, held)
    job.train_all(0)
    point = job.sync_point(2)
    assert point is not None
    assert point.ranks == [0, 2]
    job.meet(0, 2)
    assert job.free.summary()["workers_at_end"] == 2


def test_a_worker_that_nothing_replaces_is_not_awaited_where_the_others_have_met() -> None:
    job = Job(workers=3).plan(rows=24)
    job.meet(0, 2)
    assert job.want(0) is None
    job.dismiss(1)
    assert job.assigned(0) is not None


def test_an_exchange_is_answered_without_a_worker_that_nothing_replaces() -> None:
    job = Job(workers=3).plan()
    for rank in (0, 2):
        job.say(Contribution(job.stage.members[rank], "0/0"), f"from {rank}".encode())
    assert job.stage.heard(0, Gathered) == []
    job.dismiss(1)
    ((_, message, parts),) = [item for item in job.stage.sent if item[0].rank == 2][-1:]
    assert (message, list(parts)) == (Gathered("0/0"), [b"from 0", b"from 2"])


def test_an_evaluation_that_lacks_rows_of_a_lost_worker_is_named() -> None:
    job = Job(workers=2, epochs=1).begun(rows=8)
    job.train_all(0)
    assert job.sync_point() is not None
    job.dismiss(1)
    assert (
        "warning",
        {"text": "the evaluation at step 2 may lack rows of worker 1, which was lost meanwhile"},
    ) in job.stage.told
