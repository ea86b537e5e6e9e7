"""The worker role: builds the parts of a training and runs its loop."""

import contextlib
import time
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import JobSettings
from flambeau.config.strategies import ParameterServer
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.protocol import StopRequest
from flambeau.data import IndexedSource
from flambeau.embeddings.attach import tables_of
from flambeau.roles import worker_checkpoints
from flambeau.roles.client_reports import ClientReports
from flambeau.roles.process_group import backend_of, pick_device, process_group
from flambeau.roles.table_saving import table_saving
from flambeau.roles.worker_builder import WorkerBuilder
from flambeau.roles.worker_context import WorkerContext
from flambeau.roles.worker_strategy import make_strategy
from flambeau.runs import open_data
from flambeau.runs.open_data import Place
from flambeau.strategies.group import Group, ProcessGroup, Solo
from flambeau.strategies.shared_group import shared_if_possible
from flambeau.training import randomness
from flambeau.training.callbacks import Callbacks
from flambeau.training.loop import Trainer, TrainingParts, total_steps
from flambeau.training.position import Position
from flambeau.training.pulse import CollectivePulse, Pulse, ReportedPulse


def work(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Train; the summary that goes into the result (the first worker's counts)."""
    settings = JobSettings.parse(child.payload["settings"])
    run = RunDirectory(child.payload["run_dir"])
    device = pick_device(settings.compute.device, child.spec.local_rank)
    if isinstance(settings.strategy, ParameterServer) and not settings.strategy.lockstep:
        from flambeau.roles.async_worker import work_async

        return work_async(settings, run, coordinator, device, child.payload)
    with contextlib.ExitStack() as stack:
        group: Group = Solo()
        if child.spec.world > 1:
            stack.enter_context(process_group(coordinator, backend_of(device)))
            group = shared_if_possible(ProcessGroup())
        context = WorkerContext(settings, run, coordinator, group, device, child.payload)
        return PlannedWorker(context).run()


class PlannedWorker:
    """A worker that makes the same steps as all others."""

    def __init__(self, context: WorkerContext) -> None:
        self._context, self._settings, self._group = context, context.settings, context.group
        self._build = WorkerBuilder(context)

    def run(self) -> dict[str, Any]:
        """Build everything, go on from a checkpoint if there is one, train, and summarise."""
        settings, group, build = self._settings, self._group, self._build
        state = worker_checkpoints.starting_state(self._context.run, self._context.coordinator)
        randomness.seed_all(settings.seed)
        source = build.source()
        model = build.model(fresh=state is None)
        binder = build.binder(model, source)
        loader = open_data.make_loader(
            source, settings, binder, Place(group.rank, group.size), train=True
        )
        position = Position()
        by_row = isinstance(source, IndexedSource)
        if state is not None:
            position = worker_checkpoints.restored_position(
                state, group.size, self._context.payload, by_row=by_row
            )
        optimizers = build.optimizers(model)
        strategy = make_strategy(self._context, model, optimizers.first_rate)
        forward = strategy.attach(model, optimizers.by_name, own_step=settings.step is not None)
        total, per_epoch = total_steps(settings, loader, position), loader.steps()
        parts = TrainingParts(
            model=model,
            optimizers=optimizers.by_name,
            schedules=build.schedules(optimizers, total, per_epoch),
            strategy=strategy,
            group=group,
            loader=loader,
            step=build.step(forward, model, optimizers, binder, strategy),
            callbacks=Callbacks(
                [*build.callbacks(), ClientReports(self._context.coordinator, strategy)]
            ),
            view=build.view(model, optimizers, binder),
            evaluate=build.evaluation(model, settings.evaluation.exact_rows),
            saving=worker_checkpoints.NotYet(),
            report=self._context.coordinator.report,
            stop_requested=lambda: self._context.coordinator.stop_requested,
            pulse=self._pulse(position),
            device=self._context.device,
        )
        randomness.seed_all(settings.seed, group.rank)
        last = checkpoint_path(self._context.run, state.step) if state is not None else None
        tables = table_saving(self._context, strategy, tables_of(model), last)
        saving = worker_checkpoints.WorkerCheckpoints(
            self._context.run, settings, parts, tables, self._context.payload["spooling"]
        )
        parts.saving = saving
        if state is not None:
            tables.restore(state)
            worker_checkpoints.restore_model(parts, state)
        trainer = Trainer(settings, parts, position, build.best())
        self._trainer = trainer
        saving.follow(trainer.milestones)
        if state is not None:
            worker_checkpoints.restore_progress(trainer.milestones, state, group.rank, group.size)
        # As the checkpoint says: with other workers, an epoch may start again.
        saved_rows = 0 if state is None else state.extra["position"]["rows"]
        return self._train(trainer, saving, source, saved_rows)

    def _train(
        self,
        trainer: Trainer,
        saving: worker_checkpoints.WorkerCheckpoints,
        source: Any,
        saved_rows: int,
    ) -> dict[str, Any]:
        started, first_row = time.perf_counter(), trainer.position.rows
        rows = {"train_rows": len(source)} if isinstance(source, IndexedSource) else {}
        position = trainer.position
        self._build.announce(trainer.steps_total, position.step, saved_rows, **rows)
        try:
            status = trainer.run()
        finally:
            saving.close()
        seconds = time.perf_counter() - started
        summary = {
            "status": status,
            "step": position.step,
            "epoch": position.epoch,
            "rows": position.rows,
            "rows_dropped": saving.dropped,
            "rows_left_out": position.left_out,
            "rows_repeated": position.repeated,
            "seconds": seconds,
            "rows_per_second": (position.rows - first_row) / max(seconds, 1e-9),
            "stopped_early": trainer.milestones.finished_early,
            "metrics": trainer.milestones.metrics,
            "history": trainer.milestones.history,
            "own_steps": trainer.times.steps,
            "seconds_per_step": trainer.times.per_step(),
            "client": trainer.strategy.summary(),
        }
        trainer.strategy.close()
        return summary

    def _pulse(self, position: Position) -> Pulse:
        """How workers compare notes; with servers the coordinator does, so that nobody waits."""
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
