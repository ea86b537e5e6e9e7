"""Tasks of asynchronous workers, assigned one by one.

A task that a lost worker had not finished is assigned again, from the first batch that was not
reported done.
"""

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, final

import msgspec

from flambeau.coordination.batch_cuts import DropLast, drops, shard_pieces
from flambeau.errors import CheckpointError, ConfigError, DataError, ProtocolError

BATCHES_PER_TASK = 16
TASKS_PER_WORKER = 4

#: The `stop` of a task whose end is unknown until it is reached.
OPEN_END = (1 << 53) - 1


class Task(msgspec.Struct, frozen=True, array_like=True):
    """Positions `start` to `stop` of the epoch's order of rows, or of the order within a shard.

    They are cut into batches from `start`; those before `first_batch` have been trained on. Of N
    shards, the task belongs to shard `number % N`, so the task of a whole shard has the shard's
    number.
    """

    epoch: int
    number: int
    start: int
    stop: int
    first_batch: int = 0

    def batches(self, batch_size: int) -> int:
        """Return the number of its batches, including those that have been trained on."""
        return -(-(self.stop - self.start) // batch_size)


class RowCounts(msgspec.Struct):
    """Counts of rows by outcome; `read` is always the sum of the others.

    `repeated` rows were trained on again, by a worker that was considered lost, or were reported
    twice. Rows that are `left_out` were read but not meant to be trained on.
    """

    read: int = 0
    applied: int = 0
    dropped: int = 0
    repeated: int = 0
    left_out: int = 0


class _State(msgspec.Struct):
    """State in a checkpoint; `size` and `batch_size` are only compared when it is loaded."""

    epoch: int
    size: int
    batch_size: int
    tasks: list[Task]
    rows: RowCounts


class Homes(msgspec.Struct, frozen=True):
    """Location of the data: the agent that has each shard, and the agent of each worker."""

    shards: list[int]
    workers: list[int]


@final
class DynamicPlan:
    """The tasks of an epoch: each is waiting, or held by one worker.

    With `shuffle`, the order of groups of tasks differs in each epoch; within a group, tasks stay
    in order. Workers report their batches in order. A batch that is reported again changes only
    `rows.repeated`.
    """

    def __init__(
        self,
        groups: Iterable[Sequence[Task]],
        *,
        batch_size: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = False,
        homes: Homes | None = None,
    ) -> None:
        self.epoch = 0
        self.rows = RowCounts()
        self._groups = [group for group in groups if group]
        self._batch_size, self._epochs = batch_size, epochs
        self._seed, self._shuffle = seed, shuffle
        self._homes = homes
        self._waiting = self._tasks_of_epoch()
        #: Tasks in progress, by worker and number of the task.
        self._held: dict[int, dict[int, Task]] = {}

    @classmethod
    def of_rows(
        cls,
        total: int,
        *,
        batch_size: int,
        workers: int,
        epochs: int = 1,
        drop_last: DropLast = False,
    ) -> Self:
        """Make tasks of whole batches from positions of an order that is already random.

        Tasks become smaller towards the end, so that workers do not wait long for the last one.
        """
        total = _usable(total, batch_size, drop_last)
        tasks: list[Task] = []
        start = 0
        while start < total:
            share = (total - start) // (batch_size * TASKS_PER_WORKER * workers)
            stop = start + batch_size * max(1, min(BATCHES_PER_TASK, share))
            tasks.append(Task(0, len(tasks), start, min(stop, total)))
            start = stop
        return cls([tasks], batch_size=batch_size, epochs=epochs)

    @classmethod
    def of_shards(
        cls,
        rows_per_shard: Sequence[int],
        *,
        batch_size: int,
        workers: int | None = None,
        window: int | None = None,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: DropLast = False,
        homes: Homes | None = None,
    ) -> Self:
        """Make tasks of shards, in a new order in each epoch, cut so that all workers have work.

        There are at least 4 tasks for each of the `workers` (None: shards are not cut) if there are
        that many batches. Rows are shuffled in windows of `window` rows (a multiple of the batch
        size). A task that has room for a window ends with a whole one, so that only one worker
        reads it. With `homes`, the shards of an agent are cut for its workers only, and stay whole
        if it has one worker.
        """
        usable = [_usable(rows, batch_size, drop_last) for rows in rows_per_shard]
        pieces = [[(0, rows)] if rows else [] for rows in usable]
        for shards, count in _who_reads(len(usable), workers, homes):
            own = [usable[shard] for shard in shards]
            cut = shard_pieces(own, batch_size, TASKS_PER_WORKER * count, window)
            for shard, parts in zip(shards, cut, strict=True):
                pieces[shard] = parts
        groups = (
            [Task(0, shard + n * len(usable), *piece) for n, piece in enumerate(of_shard)]
            for shard, of_shard in enumerate(pieces)
        )
        return cls(
            groups, batch_size=batch_size, epochs=epochs, seed=seed, shuffle=shuffle, homes=homes
        )

    @classmethod
    def of_shares(cls, shares: int, *, batch_size: int, epochs: int = 1) -> Self:
        """Make a task for each iterator of unknown length; `task_done` reports its end."""
        tasks = [Task(0, number, 0, OPEN_END) for number in range(shares)]
        return cls([tasks], batch_size=batch_size, epochs=epochs)

    @property
    def has_homes(self) -> bool:
        """Whether only the workers of one agent can read a shard."""
        return self._homes is not None

    def idle(self, workers: int) -> int:
        """Return how many of the workers cannot get a task in an epoch."""
        if self._homes is None:
            return max(0, workers - len(self._tasks))
        tasks = Counter(map(self._home, self._tasks))
        counts = Counter(self._homes.workers)
        return sum(max(0, count - tasks[agent]) for agent, count in counts.items())

    @property
    def epoch_complete(self) -> bool:
        """Whether every batch of this epoch has been reported done."""
        return not self._waiting and not self._held

    @cached_property
    def batches_in_epoch(self) -> int | None:
        """Number of batches of an epoch; None if it is known only at its end."""
        if any(task.stop == OPEN_END for task in self._tasks):
            return None
        return sum(task.batches(self._batch_size) for task in self._tasks)

    def holds(self, worker: int) -> bool:
        """Return whether a worker has an unfinished task."""
        return worker in self._held

    @property
    def complete(self) -> bool:
        """Whether all epochs are complete.

        A loaded plan may be in an epoch after the last one, if more epochs were planned before.
        """
        done = self.epoch + 1 if self.epoch_complete else self.epoch
        return done >= self._epochs

    def next_epoch(self) -> None:
        """Begin the next epoch after this one is complete."""
        assert self.epoch_complete
        self.epoch += 1
        self._waiting = self._tasks_of_epoch()

    def take(self, worker: int) -> Task | None:
        """Assign a waiting task to a worker; return None if there is none at present."""
        task = next(filter(lambda task: self._is_for(worker, task), self._waiting), None)
        if task is None:
            return None
        self._waiting.remove(task)
        self._held.setdefault(worker, {})[task.number] = task
        return task

    def batch_done(
        self,
        worker: int,
        number: int,
        batch: int,
        rows: int,
        *,
        epoch: int | None = None,
        dropped: int = 0,
        left_out: int = 0,
    ) -> bool:
        """Record that a worker has trained on a batch of task `number`; False if it is not new.

        Of its rows, `dropped` were not applied; `left_out` rows were read in addition. `epoch` is
        that of the task, by default the current one.
        """
        task = self._in_hand(worker, number, epoch)
        new = task is not None and batch >= task.first_batch
        if task is not None and new:
            self._advance(worker, task, batch)
        self.rows.read += rows + left_out
        self.rows.left_out += left_out if new else 0
        self.rows.dropped += dropped if new else 0
        self.rows.applied += rows - dropped if new else 0
        self.rows.repeated += 0 if new else rows + left_out
        return new

    def task_done(self, worker: int, number: int, *, epoch: int | None = None) -> None:
        """Record that a worker has reached the end of a task of unknown length."""
        task = self._in_hand(worker, number, epoch)
        if task is None:
            return
        if not _is_open(task):
            raise ProtocolError(
                f"worker {worker} has ended task {number} of epoch {self.epoch} after "
                f"{task.first_batch} of its {task.batches(self._batch_size)} batches"
            )
        self._release(worker, number)

    def lost(self, worker: int) -> None:
        """Record that a worker is lost: its unfinished tasks are assigned next."""
        held = self._held.pop(worker, {})
        self._waiting.extendleft(reversed(held.values()))

    def dump(self) -> dict[str, Any]:
        """Return the position in the data as plain values; tasks in progress count as waiting."""
        held = [task for tasks in self._held.values() for task in tasks.values()]
        tasks = [*held, *self._waiting]
        state = _State(self.epoch, self._size, self._batch_size, tasks, self.rows)
        plain: dict[str, Any] = msgspec.to_builtins(state)
        return plain

    def load(self, values: Mapping[str, Any], *, whole_epoch: bool = False) -> None:
        """Resume from a `dump`, also with another number of workers.

        With `whole_epoch` the tasks are different from before, so the epoch starts again.
        """
        try:
            state = msgspec.convert(values, _State)
        except msgspec.ValidationError as error:
            raise CheckpointError(f"the checkpoint's data position is damaged: {error}") from None
        self._check_same_data(state)
        self.epoch, self.rows = state.epoch, state.rows
        self._waiting, self._held = deque(state.tasks), {}
        if whole_epoch:
            left = sum(task.stop - task.start - self._done_of(task) for task in state.tasks)
            again = self._size - left
            self.rows.applied -= again
            self.rows.repeated += again
            self._waiting = self._tasks_of_epoch()

    @property
    def _tasks(self) -> list[Task]:
        return [task for group in self._groups for task in group]

    @property
    def _size(self) -> int:
        """Number of all rows, or of iterators whose rows are unknown."""
        return sum(1 if _is_open(task) else task.stop - task.start for task in self._tasks)

    def _tasks_of_epoch(self) -> deque[Task]:
        groups = list(self._groups)
        if self._shuffle:
            random.Random(f"{self._seed} {self.epoch}").shuffle(groups)
        return deque(
            msgspec.structs.replace(task, epoch=self.epoch) for group in groups for task in group
        )

    def _is_for(self, worker: int, task: Task) -> bool:
        return self._homes is None or self._home(task) == self._homes.workers[worker]

    def _home(self, task: Task) -> int:
        assert self._homes is not None
        return self._homes.shards[task.number % len(self._homes.shards)]

    def _done_of(self, task: Task) -> int:
        """Return the number of rows of a task that have been trained on."""
        return min(task.stop - task.start, task.first_batch * self._batch_size)

    def _in_hand(self, worker: int, number: int, epoch: int | None) -> Task | None:
        """Return the rest of a task if this worker holds it, else None."""
        if epoch is not None and epoch != self.epoch:
            return None
        return self._held.get(worker, {}).get(number)

    def _release(self, worker: int, number: int) -> None:
        del self._held[worker][number]
        if not self._held[worker]:
            del self._held[worker]

    def _advance(self, worker: int, task: Task, batch: int) -> None:
        if batch > task.first_batch:
            raise ProtocolError(
                f"worker {worker} reports batch {batch} of task {task.number} of epoch "
                f"{self.epoch}, but not batch {task.first_batch} before it"
            )
        if batch + 1 < task.batches(self._batch_size):
            rest = msgspec.structs.replace(task, first_batch=batch + 1)
            self._held[worker][task.number] = rest
        else:
            self._release(worker, task.number)

    def _check_same_data(self, state: _State) -> None:
        if state.batch_size != self._batch_size:
            raise ConfigError(
                f"batch_size={self._batch_size}: the checkpoint was made with {state.batch_size}, "
                "which cannot change within an epoch"
            )
        if state.size != self._size:
            raise DataError(
                f"the training data is not the checkpoint's: {self._size} rows (or iterators) now, "
                f"{state.size} then; start a new run with init_from="
            )


def _who_reads(
    shards: int, workers: int | None, homes: Homes | None
) -> Iterator[tuple[Sequence[int], int]]:
    """Yield groups of shards that several workers read, and the number of these workers."""
    if homes is None:
        yield from () if workers is None else [(range(shards), workers)]
        return
    for agent, count in Counter(homes.workers).items():
        if count > 1:
            yield [shard for shard, home in enumerate(homes.shards) if home == agent], count


def _usable(rows: int, batch_size: int, drop_last: DropLast) -> int:
    return rows - rows % batch_size if drops(drop_last, rows, batch_size) else rows


def _is_open(task: Task) -> bool:
    return task.stop == OPEN_END
