"""The worker role: builds the parts of a training and runs its loop."""

import contextlib
import time
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import JobSettings
from flambeau.config.strategies import ParameterServer
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import TrainingPayload
from flambeau.coordination.task_messages import StopRequest
from flambeau.data.source import IndexedSource, Source
from flambeau.roles import worker_checkpoints
from flambeau.roles.process_group import backend_of, pick_device, process_group
from flambeau.roles.worker_builder import WorkerBuilder, summarize
from flambeau.roles.worker_checkpoints import WorkerCheckpoints
from flambeau.roles.worker_context import WorkerContext
from flambeau.runs import open_data
from flambeau.runs.open_data import Place
from flambeau.strategies.group import Group, ProcessGroup, Solo
from flambeau.strategies.shared_group import shared_if_possible
from flambeau.training.loop import Trainer, total_steps
from flambeau.training.position import Position
from flambeau.training.pulse import CollectivePulse, Pulse, ReportedPulse


def work(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Train; return the summary for the result (in which that of the first worker counts)."""
    payload = child.payload
    assert isinstance(payload, TrainingPayload)
    settings, run = JobSettings.parse(payload.settings), RunDirectory(child.site.run_dir)
    device = pick_device(settings.compute.device, child.spec.local_rank)
    if isinstance(settings.strategy, ParameterServer) and not settings.strategy.lockstep:
        from flambeau.roles.async_worker import work_async

        return work_async(settings, run, coordinator, device, child.site)
    with contextlib.ExitStack() as stack:
        group: Group = Solo()
        if child.spec.world > 1:
            stack.enter_context(process_group(coordinator, backend_of(device)))
            group = shared_if_possible(ProcessGroup())
        context = WorkerContext(settings, run, coordinator, group, device, child.site)
        return PlannedWorker(context).run()


class PlannedWorker:
    """A worker that makes the same steps as all others."""

    def __init__(self, context: WorkerContext) -> None:
        self._context, self._settings, self._group = context, context.settings, context.group
        self._build = WorkerBuilder(context)

    def run(self) -> dict[str, Any]:
        """Build everything, resume from a checkpoint if there is one, train, and summarise."""
        settings, group, build = self._settings, self._group, self._build
        opened = build.open()
        state, source = opened.state, opened.source
        place = Place(group.rank, group.size)
        loader = open_data.make_loader(source, settings, opened.binder, place, train=True)
        position = Position()
        if state is not None:
            by_row = isinstance(source, IndexedSource)
            position = worker_checkpoints.restored_position(state, self._context, by_row=by_row)
        total = total_steps(settings, loader, position)
        parts, saving = build.parts(opened, total, loader.steps(), settings.evaluation.exact_rows)
        self._trainer = Trainer(
            settings,
            parts,
            position,
            build.best(),
            loader,
            self._pulse(position),
            lambda: self._context.coordinator.stop_requested,
        )
        saving.follow(self._trainer.milestones)
        if state is not None:
            milestones = self._trainer.milestones
            worker_checkpoints.restore_progress(milestones, state, group.rank, group.size)
        # From the checkpoint: with another number of workers, the epoch may start again.
        saved_rows = 0 if state is None else state.extra["position"]["rows"]
        return self._train(saving, source, saved_rows)

    def _train(self, saving: WorkerCheckpoints, source: Source, saved_rows: int) -> dict[str, Any]:
        trainer, position = self._trainer, self._trainer.position
        started, first_row = time.perf_counter(), position.rows
        rows = {"train_rows": len(source)} if isinstance(source, IndexedSource) else {}
        self._build.announce(trainer.steps_total, position.step, saved_rows, **rows)
        try:
            status = trainer.run()
        finally:
            saving.close()
        seconds = time.perf_counter() - started
        return {
            **summarize(trainer, status, seconds),
            "step": position.step,
            "rows": position.rows,
            "rows_dropped": saving.dropped,
            "rows_left_out": position.left_out,
            "rows_repeated": position.repeated,
            "rows_per_second": (position.rows - first_row) / max(seconds, 1e-9),
        }

    def _pulse(self, position: Position) -> Pulse:
        """Return how workers share progress; with servers, without waiting, by the coordinator."""
        if not isinstance(self._settings.strategy, ParameterServer):
            callbacks = bool(self._settings.callbacks)
            return CollectivePulse(self._group, position.step, callbacks=callbacks)
        coordinator = self._context.coordinator

        def report(**fields: Any) -> None:
            trainer = self._trainer
            optimizer = next(iter(trainer.optimizers.values()))
            coordinator.report(
                "pulse",
                epoch=trainer.position.epoch_of_last_step,
                steps_total=trainer.steps_total,
                position_rows=trainer.position.rows,
                lr=float(optimizer.param_groups[0]["lr"]),
                **fields,
            )

        return ReportedPulse(report, lambda: coordinator.send(StopRequest(coordinator.spec)))
