"""What simulated workers and servers do, by strategy."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from simulated_workers import Simulation

from flambeau.coordination.protocol import Messages, Report, ShardJoined
from flambeau.coordination.roles import Role
from flambeau.coordination.round_messages import Commit, Staged
from flambeau.coordination.task_messages import (
    Assigned,
    PlanData,
    SyncPoint,
    SyncPointDone,
    TaskRequest,
    Trained,
)
from flambeau.coordination.tasks import BATCHES_PER_TASK, Task

BATCH_ROWS = 64
#: A worker trains on a task for a second, and reports its batches four times, as real ones do.
REPORTS_PER_TASK = 4
BATCHES_PER_REPORT = BATCHES_PER_TASK // REPORTS_PER_TASK
TASK_SECONDS = 1.0
PULSE_SECONDS = 0.5
#: An epoch has this many tasks for each worker, or this many in all if that is more.
TASKS_PER_WORKER, FEWEST_TASKS = 16, 10_000
#: The gradients of a round arrive evenly during this part of its time.
ARRIVING = 0.8


@dataclass
class _Work:
    """What a worker trains on, and the first batch that it has not reported."""

    asked: float
    task: Task | None = None
    batch: int = 0


@final
class TaskSimulation(Simulation):
    """Asynchronous workers, which train on tasks of 16 batches."""

    def __init__(self, address: str, secret: bytes, workers: int, servers: int) -> None:
        super().__init__(address, secret, workers, servers)
        self._work: dict[bytes, _Work] = {}

    @property
    def ready(self) -> bool:
        """Whether all have a task."""
        return all(work.task for work in self._work.values()) and len(self._work) == self.workers

    def begin(self, worker: bytes) -> None:
        """Request a task; the first worker reports what there is to train on."""
        spec = self.specs[worker]
        if spec.rank == 0:
            tasks = max(FEWEST_TASKS, TASKS_PER_WORKER * self.workers)
            sizes = [BATCHES_PER_TASK * BATCH_ROWS] * tasks
            self.connections.send(worker, PlanData(spec, "shards", sizes, None))
        self._request(worker)

    def pace(self) -> None:
        """Report four times a second, one worker after the other."""
        for name, spec in self.specs.items():
            if spec.role is Role.WORKER:
                # They have come to different parts of their tasks.
                self._report(name, spec.rank % REPORTS_PER_TASK)
                period = TASK_SECONDS / REPORTS_PER_TASK
                self.every(period, lambda name=name: self._report(name), spec.rank / spec.world)

    def saturate(self) -> None:
        """Finish all tasks."""
        self.saturating = True
        for name in self._names(Role.WORKER):
            self._finish(name)

    def handle(self, name: bytes, message: Messages) -> None:
        """Take tasks, and meet at sync points."""
        if isinstance(message, Assigned):
            work = self._work[name]
            work.task, work.batch = message.task, message.task.first_batch
            self.latencies.append(time.perf_counter() - work.asked)
            if self.saturating:
                self._finish(name)
        elif isinstance(message, SyncPoint):
            done = SyncPointDone(self.specs[name], message.number, False, {})
            self.connections.send(name, done)

    def _request(self, name: bytes) -> None:
        self._work[name] = _Work(time.perf_counter())
        self.connections.send(name, TaskRequest(self.specs[name]))

    def _finish(self, name: bytes) -> None:
        while self._work[name].task is not None:
            self._report(name)

    def _report(self, name: bytes, parts: int = 1) -> None:
        work = self._work[name]
        task, first = work.task, work.batch
        if task is None or parts == 0:
            return
        work.batch = min(first + parts * BATCHES_PER_REPORT, BATCHES_PER_TASK)
        complete = work.batch == BATCHES_PER_TASK
        if complete:
            self._request(name)  # real workers read ahead
        batches = [(number, BATCH_ROWS) for number in range(first, work.batch)]
        spec = self.specs[name]
        self.connections.send(
            name,
            Trained(
                spec, task.number, task.epoch, batches, 44.5, 0.24, 0.02, 0.01, 0.001, complete
            ),
        )


@final
class RoundSimulation(Simulation):
    """Synchronous workers: each round, every server reports the gradient of every worker."""

    #: Seconds from the beginning of one round to that of the next.
    round_seconds = 0.5

    def __init__(self, address: str, secret: bytes, workers: int, servers: int) -> None:
        super().__init__(address, secret, workers, servers)
        self._round = self._commits = 0
        self._open = False
        self._staged_at = 0.0
        self._arriving: Iterator[tuple[int, int]] = iter(())

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    def begin(self, worker: bytes) -> None:
        """Connect all servers once more, for rounds."""
        if worker == b"worker0":
            for name in self._names(Role.SERVER):
                self.connections.open(_rounds_of(self.specs[name].rank))
                self.connections.send(
                    _rounds_of(self.specs[name].rank), ShardJoined(self.specs[name])
                )

    def pace(self) -> None:
        """Have gradients arrive one after the other, in a round of half a second."""
        for name in self._names(Role.WORKER):
            phase = self.specs[name].rank / self.workers
            self.every(PULSE_SECONDS, lambda name=name: self._pulse(name), phase)
        self.every(self.round_seconds, self._begin_round)
        step = 0.001
        portion = self.workers * self.servers * step / (ARRIVING * self.round_seconds)
        self._credit = 0.0

        def arrive() -> None:
            self._credit = min(self._credit + portion, self.workers * self.servers)
            self._stage(int(self._credit))
            self._credit -= int(self._credit)

        self.every(step, arrive)

    def saturate(self) -> None:
        """Begin a round as soon as the last one is decided."""
        self.saturating = True
        self._begin_round()

    def handle(self, name: bytes, message: Messages) -> None:
        """Count the servers that know the decision."""
        if isinstance(message, Commit):
            self._commits += 1
            if self._commits == self.servers:
                self.latencies.append(time.perf_counter() - self._staged_at)
                self._round, self._open = self._round + 1, False
                if self.saturating:
                    self._begin_round()

    def _begin_round(self) -> None:
        if self._open:
            return  # the last one is not decided: the coordinator is too slow
        self._commits, self._open = 0, True
        self._arriving = iter(list(itertools.product(range(self.workers), range(self.servers))))
        if self.saturating:
            self._stage(self.workers * self.servers)

    def _stage(self, gradients: int) -> None:
        """Report that a number of gradients have arrived."""
        for worker, shard in itertools.islice(self._arriving, gradients):
            planned = self.workers * BATCH_ROWS
            message = Staged(shard, 0, self._round, worker, BATCH_ROWS, planned, True)
            self.connections.send(_rounds_of(shard), message)
            self._staged_at = time.perf_counter()

    def _pulse(self, name: bytes) -> None:
        fields = {
            "step": self._round,
            "sums": [44.5, BATCH_ROWS, 1, 0.24, 0.02, 0.01],
            "epoch": 0,
            "steps_total": 1 << 40,
            "position_rows": self._round * self.workers * BATCH_ROWS,
            "lr": 0.001,
        }
        self.connections.send(name, Report(self.specs[name], "pulse", fields))


def _rounds_of(shard: int) -> bytes:
    return f"rounds{shard}".encode()


SIMULATIONS: dict[str, type[Simulation]] = {"tasks": TaskSimulation, "rounds": RoundSimulation}
