import json
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.coordination.tasks import BATCHES_PER_TASK, OPEN_END, DynamicPlan, Homes, Task
from flambeau.errors import CheckpointError, ConfigError, DataError, ProtocolError

sizes = {"total": st.integers(0, 3000), "batch_size": st.integers(1, 20)}


def all_tasks(plan: DynamicPlan, worker: int = 0) -> list[Task]:
    return list(iter(lambda: plan.take(worker), None))


def batches(task: Task, batch_size: int) -> list[tuple[int, int]]:
    """Where the batches of a task begin and end."""
    starts = range(task.start, task.stop, batch_size)
    return [(start, min(start + batch_size, task.stop)) for start in starts]


def finish(plan: DynamicPlan, task: Task, batch_size: int, worker: int = 0) -> None:
    for batch, (start, stop) in enumerate(batches(task, batch_size)):
        if batch >= task.first_batch:
            assert plan.batch_done(worker, task.number, batch, stop - start, epoch=task.epoch)


def finish_epoch(plan: DynamicPlan, batch_size: int) -> list[Task]:
    tasks = all_tasks(plan)
    for task in tasks:
        finish(plan, task, batch_size)
    return tasks


@settings(max_examples=50)
@given(**sizes, workers=st.integers(1, 4), drop_last=st.booleans())
def test_one_worker_sees_the_batches_of_one_sequential_pass(
    total: int, batch_size: int, workers: int, drop_last: bool
) -> None:
    plan = DynamicPlan.of_rows(total, batch_size=batch_size, workers=workers, drop_last=drop_last)
    seen = [part for task in all_tasks(plan) for part in batches(task, batch_size)]
    whole = batches(Task(0, 0, 0, total), batch_size)
    assert seen == [(a, b) for a, b in whole if b - a == batch_size or not drop_last]


@settings(max_examples=50)
@given(**sizes, workers=st.integers(1, 4))
def test_every_worker_can_have_four_tasks_of_at_most_16_batches(
    total: int, batch_size: int, workers: int
) -> None:
    tasks = all_tasks(DynamicPlan.of_rows(total, batch_size=batch_size, workers=workers))
    counts = [task.batches(batch_size) for task in tasks]
    assert len(tasks) >= min(4 * workers, sum(counts))
    assert max(counts, default=0) <= BATCHES_PER_TASK
    assert counts == sorted(counts, reverse=True)
    assert set(counts[-workers:]) <= {1}
    assert [task.number for task in tasks] == list(range(len(tasks)))


def test_tasks_of_much_data_have_16_batches() -> None:
    first, *_ = all_tasks(DynamicPlan.of_rows(10**6, batch_size=10, workers=4))
    assert first == Task(epoch=0, number=0, start=0, stop=160)


def test_every_shard_with_rows_is_one_task() -> None:
    plan = DynamicPlan.of_shards([5, 0, 7], batch_size=3, shuffle=False)
    assert all_tasks(plan) == [Task(0, 0, 0, 5), Task(0, 2, 0, 7)]


def test_a_shard_is_cut_so_that_each_worker_has_four_tasks() -> None:
    plan = DynamicPlan.of_shards([1000], batch_size=10, workers=2, shuffle=False)
    tasks = all_tasks(plan)
    assert len(tasks) >= 8
    assert [task.start for task in tasks] == [0, *(task.stop for task in tasks[:-1])]
    assert plan.batches_in_epoch == 100


def test_tasks_of_a_shard_have_numbers_that_tell_which() -> None:
    plan = DynamicPlan.of_shards([20, 0, 30], batch_size=10, workers=2)
    tasks = all_tasks(plan)
    assert len({task.number for task in tasks}) == len(tasks) == 5
    stops = [max(task.stop for task in tasks if task.number % 3 == shard) for shard in (0, 2)]
    assert stops == [20, 30]


def test_shards_have_another_order_in_each_epoch_but_their_tasks_have_not() -> None:
    plan = DynamicPlan.of_shards([40] * 6, batch_size=10, workers=6, epochs=9)
    orders = set()
    for _ in range(8):
        tasks = finish_epoch(plan, 10)
        orders.add(tuple(task.number % 6 for task in tasks))
        assert [task.start for task in tasks] == [0, 10, 20, 30] * 6
        plan.next_epoch()
    assert len(orders) == 8


def test_a_dump_goes_on_in_the_middle_of_cut_shards_with_more_or_fewer_workers() -> None:
    def shards(workers: int) -> DynamicPlan:
        return DynamicPlan.of_shards([95, 40], batch_size=10, workers=workers, epochs=2, seed=2)

    for before, after in ((1, 6), (6, 1)):
        old, new = shards(before), shards(after)
        first, second, *rest = all_tasks(old)
        finish(old, first, 10)
        if second.batches(10) > 1:
            old.batch_done(0, second.number, 0, 10)
            second = msgspec.structs.replace(second, first_batch=1)
        new.load(json.loads(json.dumps(old.dump())))
        assert finish_epoch(new, 10) == [second, *rest]
        assert new.rows.applied == 135
        new.next_epoch()
        finish_epoch(new, 10)
        assert new.rows.applied == new.rows.read == 270
        assert new.complete


@pytest.mark.parametrize(("rows", "idle"), [([30], 0), ([20], 1), ([1, 1, 1], 0), ([5], 2)])
def test_workers_that_get_no_task_are_counted(rows: list[int], idle: int) -> None:
    assert DynamicPlan.of_shards(rows, batch_size=10, workers=3).idle(3) == idle


def test_workers_without_rows_of_their_own_are_counted() -> None:
    assert (
        DynamicPlan.of_shards([9, 0, 9], batch_size=5, homes=Homes([0, 1, 0], [0, 1, 2])).idle(3)
        == 2
    )


def test_a_shard_without_a_whole_batch_stays_when_that_is_asked_for() -> None:
    plan = DynamicPlan.of_shards([5, 2, 6], batch_size=3, shuffle=False, drop_last="when_possible")
    assert all_tasks(plan) == [Task(0, 0, 0, 3), Task(0, 1, 0, 2), Task(0, 2, 0, 6)]


def test_drop_last_leaves_whole_batches_of_each_shard() -> None:
    plan = DynamicPlan.of_shards([5, 2, 6], batch_size=3, shuffle=False, drop_last=True)
    assert all_tasks(plan) == [Task(0, 0, 0, 3), Task(0, 2, 0, 6)]


def shard_order(seed: int, epoch: int, shuffle: bool = True) -> list[int]:
    plan = DynamicPlan.of_shards([4] * 20, batch_size=4, epochs=9, seed=seed, shuffle=shuffle)
    for _ in range(epoch):
        finish_epoch(plan, 4)
        plan.next_epoch()
    tasks = all_tasks(plan)
    assert {task.epoch for task in tasks} == {epoch}
    return [task.number for task in tasks]


def test_the_order_of_shards_depends_on_seed_and_epoch_alone() -> None:
    orders = [shard_order(seed, epoch) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert shard_order(0, 1) == orders[1]


def test_without_shuffle_shards_come_in_their_order() -> None:
    assert shard_order(0, 3, shuffle=False) == list(range(20))


@pytest.fixture
def plan() -> DynamicPlan:
    """Two shards of three and two batches, for two epochs."""
    return DynamicPlan.of_shards([30, 20], batch_size=10, epochs=2, shuffle=False)


def test_a_batch_is_done_once(plan: DynamicPlan) -> None:
    plan.take(0)
    assert [plan.batch_done(0, 0, 0, 10) for _ in range(2)] == [True, False]
    assert (plan.rows.read, plan.rows.applied, plan.rows.repeated) == (20, 10, 10)


def test_rows_that_were_not_applied_are_dropped(plan: DynamicPlan) -> None:
    plan.take(0)
    assert plan.batch_done(0, 0, 0, 10, dropped=10)
    assert (plan.rows.read, plan.rows.applied, plan.rows.dropped) == (10, 0, 10)


def test_a_lost_workers_tasks_come_next_from_the_batch_that_was_not_done(plan: DynamicPlan) -> None:
    for _ in range(2):
        plan.take(0)
    plan.batch_done(0, 0, 0, 10)
    plan.lost(0)
    assert all_tasks(plan, 1) == [Task(0, 0, 0, 30, first_batch=1), Task(0, 1, 0, 20)]


def test_tasks_that_come_back_go_before_those_that_wait(plan: DynamicPlan) -> None:
    plan.take(0)
    plan.lost(0)
    assert plan.take(1) == Task(0, 0, 0, 30)


def test_a_lost_worker_can_do_no_more(plan: DynamicPlan) -> None:
    plan.take(0)
    plan.lost(0)
    plan.take(1)
    assert not plan.batch_done(0, 0, 0, 10)
    assert plan.batch_done(1, 0, 0, 10)


def test_a_finished_task_does_not_come_back(plan: DynamicPlan) -> None:
    task = plan.take(0)
    assert task is not None
    finish(plan, task, 10)
    plan.lost(0)
    assert [task.number for task in all_tasks(plan, 1)] == [1]


def test_the_epoch_is_complete_when_all_batches_are_done(plan: DynamicPlan) -> None:
    complete = []
    for task in reversed(all_tasks(plan)):
        complete.append(plan.epoch_complete)
        finish(plan, task, 10)
    assert [*complete, plan.epoch_complete] == [False, False, True]
    assert not plan.complete


def test_everything_is_complete_after_the_last_epoch(plan: DynamicPlan) -> None:
    finish_epoch(plan, 10)
    plan.next_epoch()
    assert not plan.complete
    finish_epoch(plan, 10)
    assert plan.complete


def test_a_report_on_the_epoch_before_is_not_new(plan: DynamicPlan) -> None:
    finish_epoch(plan, 10)
    plan.next_epoch()
    plan.take(0)
    assert not plan.batch_done(0, 0, 0, 10, epoch=0)
    assert plan.batch_done(0, 0, 0, 10, epoch=1)


def test_a_batch_that_is_reported_before_its_turn_is_an_error(plan: DynamicPlan) -> None:
    plan.take(0)
    with pytest.raises(ProtocolError, match=r"batch 1 of task 0 of epoch 0, but not batch 0"):
        plan.batch_done(0, 0, 1, 10)


def test_a_task_that_ends_too_early_is_an_error(plan: DynamicPlan) -> None:
    plan.take(0)
    plan.batch_done(0, 0, 0, 10)
    with pytest.raises(ProtocolError, match="after 1 of its 3 batches"):
        plan.task_done(0, 0)


def test_the_end_of_a_task_that_another_has_now_means_nothing(plan: DynamicPlan) -> None:
    plan.take(0)
    plan.lost(0)
    plan.take(1)
    plan.task_done(0, 0)
    assert plan.batch_done(1, 0, 0, 10)


def test_a_share_of_unknown_length_ends_when_its_worker_says_so() -> None:
    plan = DynamicPlan.of_shares(1, batch_size=10)
    assert plan.take(0) == Task(0, 0, 0, OPEN_END)
    assert plan.batch_done(0, 0, 0, 10)
    plan.lost(0)
    assert plan.take(1) == Task(0, 0, 0, OPEN_END, first_batch=1)
    plan.task_done(1, 0)
    assert plan.complete


def test_a_dump_of_another_number_of_workers_goes_on_with_the_rest() -> None:
    old = DynamicPlan.of_rows(1000, batch_size=10, workers=1)
    tasks = all_tasks(old)
    finish(old, tasks[0], 10)
    old.batch_done(0, 1, 0, 10)
    new = DynamicPlan.of_rows(1000, batch_size=10, workers=8)
    new.load(json.loads(json.dumps(old.dump())))
    first, *rest = all_tasks(new)
    assert first == msgspec.structs.replace(tasks[1], first_batch=1)
    assert rest == tasks[2:]
    assert new.rows == old.rows


def test_a_loaded_plan_has_the_later_epochs_it_would_have_had() -> None:
    def shards() -> DynamicPlan:
        return DynamicPlan.of_shards([4] * 20, batch_size=4, epochs=3, seed=3)

    new, old = shards(), shards()
    finish_epoch(old, 4)
    old.next_epoch()
    new.load(old.dump())
    for plan in (new, old):
        finish_epoch(plan, 4)
        plan.next_epoch()
    assert all_tasks(new) == all_tasks(old)


def test_a_dump_does_not_change_with_the_plan(plan: DynamicPlan) -> None:
    plan.take(0)
    state = plan.dump()
    copy = json.dumps(state)
    plan.batch_done(0, 0, 0, 10)
    assert json.dumps(state) == copy


def test_a_dump_of_other_batches_or_data_is_refused(plan: DynamicPlan) -> None:
    with pytest.raises(ConfigError, match="batch_size=5: the checkpoint was made with 10"):
        DynamicPlan.of_shards([30, 20], batch_size=5).load(plan.dump())
    with pytest.raises(DataError, match="51 rows"):
        DynamicPlan.of_shards([30, 21], batch_size=10).load(plan.dump())


def test_a_damaged_dump_is_refused(plan: DynamicPlan) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        plan.load({**plan.dump(), "tasks": [["no", "task"]]})


# Asynchronous workers in random order: their reports come late and twice, they are taken for lost
# and continue all the same, and now and then everything starts again from a checkpoint.

Done = tuple[int, int, int]


@dataclass
class Process:
    """One attempt at being a worker; `reports` are on their way."""

    worker: int
    tasks: list[Task] = field(default_factory=list)
    next_batch: int = 0
    reports: deque[tuple[Done, int]] = field(default_factory=deque)

    def train(self, batch_size: int) -> None:
        """The next batch of the first task."""
        task, parts = self.tasks[0], batches(self.tasks[0], batch_size)
        batch = max(self.next_batch, task.first_batch)
        start, stop = parts[batch]
        self.reports.append(((task.epoch, task.number, batch), stop - start))
        self.next_batch = batch + 1
        if self.next_batch == len(parts):
            self.tasks, self.next_batch = self.tasks[1:], 0


class Simulation:
    """`done` counts each batch that was new, less those that a checkpoint forgot."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.batch_size = self.chance.randint(1, 6)
        self.workers = self.chance.randint(1, 4)
        self.data = [self.chance.randint(0, 30) for _ in range(self.chance.randint(1, 6))]
        self.by_shards = self.chance.random() < 0.6
        self.cuts = self.chance.random() < 0.5
        self.plan = self.fresh()
        self.alive = [Process(number) for number in range(self.workers)]
        self.zombies: list[Process] = []
        self.attempts = self.workers
        self.done: Counter[Done] = Counter()
        self.checkpoint: tuple[str, Counter[Done]] = (json.dumps(self.plan.dump()), Counter())

    def fresh(self) -> DynamicPlan:
        common: dict[str, Any] = {"batch_size": self.batch_size, "epochs": 2}
        if self.by_shards:
            workers = self.workers if self.cuts else None
            return DynamicPlan.of_shards(self.data, seed=1, workers=workers, **common)
        return DynamicPlan.of_rows(sum(self.data), workers=self.workers, **common)

    def expected(self) -> Iterator[Done]:
        """Every batch of every epoch."""
        for task in all_tasks(self.fresh()):
            for batch in range(task.batches(self.batch_size)):
                yield from ((epoch, task.number, batch) for epoch in range(2))

    def run(self) -> None:
        troubles = 12
        while not self.plan.complete:
            if troubles and self.chance.random() < 0.05:
                troubles -= 1
                self.chance.choice([self.save, self.lose, self.lose, self.lose, self.restart])()
            else:
                self.act(self.chance.choice(self.alive + self.zombies))
            if self.plan.epoch_complete and not self.plan.complete:
                self.plan.next_epoch()
            self.check()

    def act(self, process: Process) -> None:
        if process.reports and self.chance.random() < 0.5:
            self.hear(process)
            return
        reads_ahead = len(process.tasks) == 1 and self.chance.random() < 0.2
        if process in self.alive and (reads_ahead or not process.tasks):
            task = self.plan.take(process.worker)
            process.tasks += [task] if task else []
        elif process.tasks:
            process.train(self.batch_size)

    def hear(self, process: Process) -> None:
        report = process.reports.popleft()
        if self.chance.random() < 0.1:
            process.reports.append(report)
        (epoch, number, batch), rows = report
        new = self.plan.batch_done(process.worker, number, batch, rows, epoch=epoch)
        self.done[epoch, number, batch] += new

    def lose(self) -> None:
        """A worker is taken for lost, and another one started."""
        process = self.chance.choice(self.alive)
        self.plan.lost(process.worker)
        self.alive.remove(process)
        self.zombies = [*self.zombies, process][-3:]
        self.start_one()

    def start_one(self) -> None:
        self.alive.append(Process(self.attempts))
        self.attempts += 1

    def save(self) -> None:
        self.checkpoint = (json.dumps(self.plan.dump()), self.done.copy())

    def restart(self) -> None:
        """Everybody is gone, and others go on from the checkpoint."""
        self.zombies, self.alive = self.alive[-3:], []
        for _ in range(self.workers):
            self.start_one()
        self.plan = self.fresh()
        self.plan.load(json.loads(self.checkpoint[0]))
        self.done = self.checkpoint[1].copy()

    def check(self) -> None:
        rows = self.plan.rows
        assert rows.read == rows.applied + rows.dropped + rows.repeated + rows.left_out
        tasks = [(task.epoch, task.number) for process in self.alive for task in process.tasks]
        assert len(set(tasks)) == len(tasks)


@pytest.fixture(scope="module")
def simulations() -> list[Simulation]:
    """Trainings that have come to their end, with the books balanced at every moment."""
    worlds = [Simulation(seed) for seed in range(600)]
    for world in worlds:
        world.run()
    return worlds


def test_every_batch_of_every_epoch_is_done_exactly_once(simulations: list[Simulation]) -> None:
    for world in simulations:
        assert +world.done == Counter(world.expected())


def test_every_row_of_every_epoch_is_applied_exactly_once(simulations: list[Simulation]) -> None:
    for world in simulations:
        assert world.plan.rows.applied == 2 * sum(world.data)


def test_a_task_with_a_home_is_for_the_only_worker_there() -> None:
    homes = Homes([1, 0, 1], [0, 1])
    plan = DynamicPlan.of_shards([10, 20, 30], batch_size=10, shuffle=False, homes=homes)
    assert [task.number for task in iter(lambda: plan.take(1), None)] == [0, 2]
    assert [task.number for task in iter(lambda: plan.take(0), None)] == [1]
    plan.lost(1)
    assert plan.take(0) is None
    assert plan.take(1) is not None


def test_the_workers_of_an_agent_share_its_tasks() -> None:
    """Two agents with two workers each; one of them is lost on the way."""
    rows, homes = [30, 25, 90, 10, 45], Homes([0, 0, 0, 1, 1], [0, 0, 1, 1])
    plan = DynamicPlan.of_shards(rows, batch_size=10, epochs=2, workers=4, homes=homes)
    assert plan.idle(4) == 0
    for epoch in range(2):
        read: Counter[tuple[int, int]] = Counter()
        lost = plan.take(3)
        assert lost is not None
        plan.lost(3)
        working = deque(range(4))
        trained = set()
        while working:
            worker = working.popleft()
            task = plan.take(worker)
            if task is None:
                continue
            shard = task.number % len(rows)
            assert homes.shards[shard] == homes.workers[worker]
            read.update((shard, row) for row in range(task.start, task.stop))
            for batch in range(task.batches(10)):
                plan.batch_done(worker, task.number, batch, 10)
            trained.add(worker)
            working.append(worker)
        assert trained == {0, 1, 2, 3}
        assert plan.epoch_complete
        assert read == Counter((n, row) for n, count in enumerate(rows) for row in range(count))
        if epoch == 0:
            plan.next_epoch()


def test_workers_of_an_agent_with_fewer_batches_than_workers_are_idle() -> None:
    homes = Homes([0, 1], [0, 0, 1, 1])
    assert DynamicPlan.of_shards([99, 9], batch_size=10, workers=4, homes=homes).idle(4) == 1


def test_shards_of_agents_with_one_worker_each_stay_whole() -> None:
    homes = Homes([0, 1], [0, 1])
    plan = DynamicPlan.of_shards([900, 900], batch_size=10, workers=2, homes=homes)
    assert all_tasks(plan, 0) == [Task(0, 0, 0, 900)]
    assert all_tasks(plan, 1) == [Task(0, 1, 0, 900)]


def test_with_other_parts_of_the_data_the_epoch_starts_again() -> None:
    plan = DynamicPlan.of_shards([30, 20], batch_size=10, epochs=2, shuffle=False)
    task = plan.take(0)
    assert task is not None
    plan.batch_done(0, task.number, 0, 10)
    saved = plan.dump()
    other = DynamicPlan.of_shards([25, 25], batch_size=10, epochs=2, shuffle=False)
    other.load(saved, whole_epoch=True)
    assert (other.rows.read, other.rows.applied, other.rows.repeated) == (10, 0, 10)
    left = list(iter(lambda: other.take(0), None))
    assert [(task.start, task.stop, task.first_batch) for task in left] == [(0, 25, 0)] * 2
