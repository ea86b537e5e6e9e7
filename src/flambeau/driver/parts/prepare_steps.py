"""The steps of a preparation, run in this process or by the preparers of a cluster."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import final

import cloudpickle
import msgspec

from flambeau.config import Cluster, Local
from flambeau.coordination.payloads import PieceDone, PreparerPayload
from flambeau.coordination.roles import Role
from flambeau.driver.parts.part_coordinator import PartCoordinator
from flambeau.driver.parts.run_parts import run_parts
from flambeau.driver.topology import Topology
from flambeau.features.preparing.preparation import Preparation
from flambeau.features.preparing.stage_runner import Progress, Runner, Todo
from flambeau.observe import Observer
from flambeau.observe.memory import peak_memory


def runner(cluster: Cluster, observer: Observer, *, travels: bool) -> Runner:
    """Return a function that runs the steps of a preparation on a cluster, in one job.

    If other processes cannot open the data (`travels`), or one process of this machine is enough,
    this process does the work.
    """

    def run(job: Preparation, todo: Sequence[Todo], progress: Progress) -> None:
        local = isinstance(cluster, Local)
        most = max(len(each.pieces) for each in todo)
        workers = min(cluster.workers, most) if local else cluster.workers
        if not travels or (workers == 1 and local):
            do_here(job, todo, progress)
            return
        part = replace(job, memory=job.memory // workers)
        _run_roles(part, todo, Local(workers) if local else cluster, observer, progress)

    return run


def do_here(job: Preparation, todo: Sequence[Todo], progress: Progress) -> None:
    """Run the pieces of steps in this process."""
    for each in todo:
        stage = progress.begin(each)
        for piece in each.pieces:
            job.do(each.step, piece, stage.add_rows)
            stage.note_memory("driver", peak_memory())
            stage.piece_done()


def _run_roles(
    job: Preparation,
    todo: Sequence[Todo],
    cluster: Cluster,
    observer: Observer,
    progress: Progress,
) -> None:
    """Run the pieces of steps in preparers; each step starts when the one before is complete."""
    watch = _Watch(todo, progress)
    first, *later = numbered(todo)
    coordinator = PartCoordinator(first, watch.on_rows, watch.on_piece, later)
    topology = Topology(cluster.workers, Role.PREPARER, coordinator=coordinator)
    steps = [(each.step, each.pieces) for each in todo]
    payload = PreparerPayload(cloudpickle.dumps((job, steps)))
    run_parts(topology, cluster, payload, observer=observer, resumes=True)


def numbered(todo: Sequence[Todo]) -> list[list[int]]:
    """Return consecutive numbers for the pieces of all steps, by step."""
    counts = [len(each.pieces) for each in todo]
    starts = [0, *accumulate(counts)]
    return [list(range(start, start + count)) for start, count in zip(starts, counts, strict=False)]


@final
class _Watch:
    """A reporter of the progress of steps; it starts a step once the one before is complete."""

    def __init__(self, todo: Sequence[Todo], progress: Progress) -> None:
        self._later, self._progress = deque(todo), progress
        self._next()

    def _next(self) -> None:
        step = self._later.popleft()
        self._left, self._stage = len(step.pieces), self._progress.begin(step)

    def on_rows(self, rows: int) -> None:
        """Count rows that have been read."""
        self._stage.add_rows(rows)

    def on_piece(self, piece: int, result: bytes) -> None:
        """Count a piece that is complete."""
        done = msgspec.msgpack.decode(result, type=PieceDone)
        self._stage.note_memory(done.process, done.peak_bytes)
        self._stage.piece_done()
        self._left -= 1
        if not self._left and self._later:
            self._next()
