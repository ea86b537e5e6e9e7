"""The coordinator of asynchronous workers: it assigns tasks and announces sync points."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import msgspec

from flambeau.checkpoint.references import step_of
from flambeau.config import JobSettings
from flambeau.config.strategies import ParameterServer
from flambeau.coordination.clocks import Clocks
from flambeau.coordination.exchanges import Exchanges
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.coordination.step_budget import StepBudget
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
from flambeau.coordination.tasks import DynamicPlan
from flambeau.driver.async_progress import AsyncProgress
from flambeau.driver.control.lost_updates import LostUpdates
from flambeau.driver.coordinators import PROGRESS_SECONDS, TrainingCoordinator
from flambeau.driver.task_plan import idle_warning, make_plan


@final
class TaskCoordinator(TrainingCoordinator):
    """The coordinator of asynchronous or bounded workers. Lost ones and lost servers are replaced.

    The other workers continue meanwhile. The job is a sequence of sync points, at which all workers
    meet; in between, a worker gets a task whenever it requests one. The first sync point saves the
    start, so that a lost server can be restored.
    The last one stays open: the replacement of a worker that is lost before its end is called to it
    again.
    """

    elastic = True
    needs_first = True  # it saves for all workers, and has their milestones

    def __init__(self, settings: JobSettings) -> None:
        super().__init__()
        assert isinstance(settings.strategy, ParameterServer)
        self._settings = settings
        self._bounded = settings.strategy.consistency == "bounded"
        self.begin(0)

    def begin(self, generation: int) -> None:
        """Reset all state; the first worker reports the checkpoint to start from."""
        self._plan: DynamicPlan | None = None
        self._budget: StepBudget | None = None
        self._clocks = Clocks()
        #: Ranks of workers at sync points: all but those that were lost and not replaced.
        self._ranks = set(range(self._settings.cluster.workers))
        self._parked: dict[int, RoleSpec] = {}
        self._sync_point: SyncPoint | None = None
        self._met: set[int] = set()
        self._sync_points = 0
        self._evaluated_at = self._saved_at = 0
        self._save_soon = False
        self._exchanges = Exchanges()
        self._carried: dict[str, Any] = {}
        self._informed: set[int] = set()
        self._progress = AsyncProgress()
        self._lost_updates = LostUpdates()
        self._told = time.monotonic()

    # Messages
    def handle(self, peer: bytes, message: Any, buffers: Sequence[Any]) -> None:
        """Handle messages of workers."""
        if isinstance(message, PlanData):
            self._set_up(message)
        elif isinstance(message, TaskRequest):
            self._parked[message.spec.rank] = message.spec
            self._hand_out([message.spec])
        elif isinstance(message, Trained):
            self._trained(message)
        elif isinstance(message, SyncPointDone):
            self._done_with(message)
        elif isinstance(message, Contribution):
            self._contribute(message, bytes(buffers[0]) if buffers else b"")
        elif isinstance(message, StopRequest):
            self.stop()

    def joined(self, spec: RoleSpec) -> None:
        """Call a worker that joins during a sync point to it, too."""
        if spec.role is Role.WORKER and self._sync_point is not None:
            self._met.discard(spec.rank)
            self._call(spec)

    def lost(self, spec: RoleSpec) -> None:
        """Return a lost worker's tasks to the plan; after a lost server, save again soon."""
        if spec.role is not Role.WORKER:
            self._save_soon = self._save_soon or spec.role is Role.SERVER
            return
        self._parked.pop(spec.rank, None)
        self._informed.discard(spec.rank)
        if self._plan is None:
            return
        self._plan.lost(spec.rank)
        if self._budget is not None:
            self._budget.take_back(spec.rank)
        self._leave(spec.rank)
        self._hand_out_to_all()

    def dismissed(self, spec: RoleSpec) -> None:
        """Give a lost worker's tasks to the others, which meet without it from now on."""
        self.lost(spec)
        self._ranks.discard(spec.rank)
        self._answer_exchanges()
        if self._sync_point is not None and self._sync_point.evaluate:
            text = (
                f"the evaluation at step {self._sync_point.step} may lack rows of "
                f"{spec.name}, which was lost meanwhile"
            )
            self.stage.emit("warning", text=text)
        self._end_sync_point()

    def replaced(self, spec: RoleSpec, checkpoint: str | None) -> None:
        """Count updates that a new server lacks: it has a checkpoint's, but the plan continues."""
        if spec.role is Role.SERVER and checkpoint is not None:
            self._lost_updates.restored(step_of(Path(checkpoint)), self._progress.step)

    def stop(self) -> None:
        """Announce the last sync point as soon as possible."""
        self.stopping = True
        self._call_if_due()

    def tick(self, now: float) -> None:
        """Report progress."""
        if now - self._told >= PROGRESS_SECONDS and self._plan is not None:
            elapsed, self._told = now - self._told, now
            fields = self._progress.take(elapsed)
            if fields:
                total = self._steps_total()
                self.stage.emit("progress", epoch=self._plan.epoch, steps_total=total, **fields)

    def rows(self) -> dict[str, int] | None:
        """Return how many rows were read, applied, dropped, repeated and left out."""
        if self._plan is None:
            return None
        rows = self._plan.rows
        counts = {
            "read": rows.read,
            "applied": rows.applied,
            "dropped": rows.dropped,
            "repeated": rows.repeated,
        }
        return {**counts, "left_out": rows.left_out} if rows.left_out else counts

    def summary(self) -> dict[str, Any]:
        """Return the counts of steps, sync points and lost updates; empty before the start."""
        if self._plan is None:
            return {}
        fewer = len(self._ranks) < self._settings.cluster.workers
        return {
            **({"workers_at_end": len(self._ranks)} if fewer else {}),
            "step": self._progress.step,
            "sync_points": self._sync_points,
            "updates_lost": self._lost_updates.count,
        }

    # Tasks

    def _set_up(self, data: PlanData) -> None:
        if self._plan is not None:
            return  # sent by a replacement of the first worker
        self._plan, self._carried = make_plan(self._settings, data), data.progress
        if (text := idle_warning(self._settings, self._plan)) is not None:
            self.stage.emit("warning", text=text)
        if data.state is not None:
            self._plan.load(data.state["plan"], whole_epoch=data.state.get("other_frames", False))
            self._progress.step = self._evaluated_at = self._saved_at = data.state["step"]
            self._progress.rows = self._plan.rows.applied + self._plan.rows.dropped
            self._lost_updates = LostUpdates(data.state.get("updates_lost", 0))
        if self._settings.max_steps is not None:
            left = max(0, self._settings.max_steps - self._progress.step)
            self._budget = StepBudget(left, self._settings.cluster.workers)
        if self._finished() or (data.state or {}).get("over"):
            self._announce(evaluate=True, save=True, last=True)
        elif data.state is None:
            self._announce(evaluate=False, save=True, last=False)
        else:
            self._call_if_due()  # the job may have more epochs than before
            self._hand_out_to_all()

    def _hand_out_to_all(self) -> None:
        self._hand_out(list(self._parked.values()))

    def _hand_out(self, specs: Sequence[RoleSpec]) -> None:
        """Assign tasks to workers that have requested one."""
        if self._plan is None or self._sync_point is not None:
            return
        for spec in specs:
            rank = spec.rank
            task = self._plan.take(rank)
            if task is None:
                if not self._plan.holds(rank):
                    # It is idle, so no worker needs to wait for it.
                    self._leave(rank)
                continue
            del self._parked[rank]
            progress = {} if rank in self._informed else self._carried
            self._informed.add(rank)
            self.stage.send(spec, Assigned(task, self._join(rank), self._progress.step, progress))
        self._grant(specs)

    def _grant(self, specs: Sequence[RoleSpec]) -> None:
        """Grant steps to workers that hold tasks, including steps that others do not use.

        `specs` are the workers whose tasks or steps have changed.
        """
        if self._budget is None or self._plan is None:
            return
        for spec in specs:
            if not self._plan.holds(spec.rank) and (left := self._budget.take_back(spec.rank)):
                self.stage.send(spec, StepGrant(-left, None))
        for spec in self.stage.roles(Role.WORKER) if self._budget.has_grown() else specs:
            if not self._plan.holds(spec.rank):
                continue
            if steps := self._budget.grant(spec.rank):
                self.stage.send(spec, StepGrant(steps, self._join(spec.rank)))
            elif self._budget.is_spent(spec.rank):
                self._leave(spec.rank)  # it makes no more steps that others could wait for

    def _trained(self, message: Trained) -> None:
        assert self._plan is not None
        rank, epoch = message.spec.rank, message.epoch
        new = [
            rows
            for number, rows in message.batches
            if self._plan.batch_done(
                rank,
                message.task,
                number,
                rows,
                epoch=epoch,
                dropped=rows if number in message.dropped else 0,
                left_out=message.left_out.get(number, 0),
            )
        ]
        if message.complete:
            self._plan.task_done(rank, message.task, epoch=epoch)
        self._progress.add(message, new)
        if self._sync_point is not None:
            self._lost_updates.saved(self._sync_point.step, self._progress.step)
        if self._budget is not None:
            self._budget.made(rank, len(message.batches), len(new))
        if self._clocks.tick(rank, len(message.batches)):
            self._send_slowest_clock()
        if rank in self._parked and not self._plan.holds(rank):
            self._leave(rank)
        self._grant([message.spec])
        self._call_if_due()

    def _join(self, rank: int) -> int | None:
        """Return the new clock of a worker that was idle; None if it was not."""
        if rank in self._clocks:
            return None
        self._clocks.join(rank)
        return self._clocks[rank]

    def _leave(self, rank: int) -> None:
        if self._clocks.leave(rank):
            self._send_slowest_clock()

    def _send_slowest_clock(self) -> None:
        if self._bounded:
            for spec in self.stage.roles(Role.WORKER):
                self.stage.send(spec, SlowestClock(self._clocks.slowest))

    # Sync points

    def _call_if_due(self) -> None:
        if self._plan is None or self._sync_point is not None:
            return
        step, settings = self._progress.step, self._settings
        ends_epoch = self._plan.epoch_complete
        epochs = self._plan.epoch + 1
        last = self.stopping or self._finished()
        evaluate = _passed(settings.evaluation.every_steps, self._evaluated_at, step)
        save = self._save_soon or _passed(settings.checkpoints.every_steps, self._saved_at, step)
        if ends_epoch:
            evaluate = evaluate or _every(settings.evaluation.every_epochs, epochs)
            save = save or _every(settings.checkpoints.every_epochs, epochs)
        if last or evaluate or save:
            self._announce(
                evaluate=evaluate or (last and not self.stopping), save=save or last, last=last
            )
        elif ends_epoch:
            self._plan.next_epoch()
            self._hand_out_to_all()

    def _announce(self, *, evaluate: bool, save: bool, last: bool) -> None:
        assert self._plan is not None
        step, epoch = self._progress.step, self._plan.epoch
        if self._plan.epoch_complete:
            epoch += 1
            if not last:
                self._plan.next_epoch()
        self._evaluated_at = step if evaluate else self._evaluated_at
        if save:
            self._saved_at, self._save_soon = step, False
        lost = self._lost_updates.count
        plan = {"plan": self._plan.dump(), "step": step, "updates_lost": lost}
        stops = last and self.stopping and not self._finished()
        asked = (evaluate, save, last, plan, self._carried, sorted(self._ranks), stops)
        self._sync_point = SyncPoint(self._sync_points, step, epoch, *asked)
        self._sync_points += 1
        self._met = set()
        for spec in self.stage.roles(Role.WORKER):
            self._call(spec)

    def _call(self, spec: RoleSpec) -> None:
        """Call a worker to the sync point; only the first worker saves, and needs the plan."""
        assert self._sync_point is not None
        plan = self._sync_point.plan if spec.rank == 0 else {}
        self.stage.send(spec, msgspec.structs.replace(self._sync_point, plan=plan))

    def _done_with(self, message: SyncPointDone) -> None:
        if self._sync_point is None or message.number != self._sync_point.number:
            return
        self._met.add(message.spec.rank)
        if message.spec.rank == 0:
            self._carried = message.progress
        self.stopping = self.stopping or message.stop
        self._end_sync_point()

    def _end_sync_point(self) -> None:
        """Continue when all workers have met; the last sync point stays, for replaced workers."""
        if self._sync_point is None or self._sync_point.last or not self._ranks <= self._met:
            return
        self._sync_point = None
        self._exchanges = Exchanges()
        self._call_if_due()
        self._hand_out_to_all()

    def _contribute(self, message: Contribution, data: bytes) -> None:
        if self._exchanges.is_answered(message.key):
            self._send_parts(message.key, [message.spec])
            return
        self._exchanges.add(message.key, message.spec.rank, data)
        self._answer_exchanges()

    def _answer_exchanges(self) -> None:
        for key in self._exchanges.take_complete(self._ranks):
            self._send_parts(key, self.stage.roles(Role.WORKER))

    def _send_parts(self, key: str, specs: Sequence[RoleSpec]) -> None:
        for spec in specs:
            self.stage.send(spec, Gathered(key), self._exchanges.parts(key))

    def _finished(self) -> bool:
        assert self._plan is not None
        limit = self._settings.max_steps
        return self._plan.complete or (limit is not None and self._progress.step >= limit)

    def _steps_total(self) -> int | None:
        assert self._plan is not None
        whole = self._plan.batches_in_epoch
        if whole is None:
            return self._settings.max_steps
        total = whole * self._settings.epochs
        return min(total, self._settings.max_steps or total)


def _passed(every: int | None, before: int, now: int) -> bool:
    return every is not None and now // every > before // every


def _every(every: int | None, count: int) -> bool:
    return every is not None and count % every == 0
