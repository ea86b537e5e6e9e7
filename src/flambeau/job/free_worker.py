"""The worker role when workers run free: tasks come from the coordinator, one after the other."""

import time
from typing import Any

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path
from flambeau.checkpoint.store import TrainingState
from flambeau.config import JobSettings
from flambeau.config.strategies import ParameterServer
from flambeau.coordination.consistency import Asynchronous, Bounded, ConsistencyPolicy
from flambeau.coordination.link import Link
from flambeau.coordination.plans import IndexedPlan
from flambeau.coordination.protocol import PlanData, WantStop
from flambeau.coordination.whole_batches import drops
from flambeau.data import IndexedSource, IterableSource, Source
from flambeau.data.binding import Binder
from flambeau.data.sources.spooled import SpooledSource
from flambeau.data.task_reader import IndexedTasks, SharedTasks, StreamedTasks, TaskReader
from flambeau.embeddings.attach import tables_of
from flambeau.job import checkpointing, opening
from flambeau.job.agreeing import make_strategy
from flambeau.job.assembling import Assembly
from flambeau.job.client_reports import ClientReports
from flambeau.job.free import ExchangeGroup, LinkConductor
from flambeau.job.surroundings import Surroundings
from flambeau.job.table_saving import table_saving
from flambeau.training import randomness
from flambeau.training.callbacks import Callbacks
from flambeau.training.free_loop import FreeParts, FreeTrainer
from flambeau.training.milestones import Milestones
from flambeau.training.position import Position

#: AUC is exact up to so many rows, since scores of all workers pass through the coordinator.
EXACT_ROWS = 200_000


def work_free(
    settings: JobSettings,
    run: RunDirectory,
    link: Link,
    device: torch.device,
    payload: dict[str, Any],
) -> dict[str, Any]:
    """Train until everything is done; the summary that goes into the result."""
    where = Surroundings(settings, run, link, ExchangeGroup(link), device, payload)
    return FreeWorker(where).run()


class FreeWorker:
    """A worker that trains at its own pace."""

    def __init__(self, where: Surroundings) -> None:
        self._where, self._settings = where, where.settings
        self._build = Assembly(where)

    def run(self) -> dict[str, Any]:
        """Build everything, tell the coordinator what there is to do, train, and summarise."""
        settings, where, build = self._settings, self._where, self._build
        state = checkpointing.starting_state(where.run, where.link)
        randomness.seed_all(settings.seed)
        source = build.source()
        model = build.model(fresh=state is None)
        binder = build.binder(model, source)
        optimizers = build.optimizers(model)
        strategy = make_strategy(where, model, optimizers.first_rate)
        forward = strategy.attach(model, optimizers.by_name, own_step=settings.step is not None)
        per_epoch = self._batches(source)
        total = None if per_epoch is None else per_epoch * settings.epochs
        group = where.group
        assert isinstance(group, ExchangeGroup)
        reader = self._reader(source, binder)
        ahead, limited = settings.loading.read_ahead, settings.max_steps is not None
        conductor = LinkConductor(where.link, group, reader, self._policy(), ahead, limited=limited)
        exact_rows = min(EXACT_ROWS, settings.evaluation.exact_rows)
        parts = FreeParts(
            model=model,
            optimizers=optimizers.by_name,
            schedules=build.schedules(
                optimizers, min(total or 0, settings.max_steps or total or 0) or None, per_epoch
            ),
            strategy=strategy,
            group=group,
            conductor=conductor,
            step=build.step(forward, model, optimizers, binder, strategy),
            callbacks=Callbacks([*build.callbacks(), ClientReports(where.link, strategy)]),
            view=build.view(model, optimizers, binder),
            evaluate=build.evaluation(model, exact_rows),
            saving=checkpointing.NotYet(),
            report=where.link.report,
            want_stop=lambda: where.link.send(WantStop(where.link.spec)),
            device=where.device,
        )
        randomness.seed_all(settings.seed, group.rank)
        last = checkpoint_path(where.run, state.step) if state is not None else None
        tables = table_saving(where, strategy, tables_of(model), last)
        saving = checkpointing.WorkerCheckpoints(
            where.run, settings, parts, tables, where.payload["spooling"]
        )
        parts.saving = saving
        trainer = FreeTrainer(settings, parts, self._position(parts, state), build.best())
        saving.follow(trainer.milestones)
        trainer.on_moment = saving.at
        if state is not None:
            trainer.milestones.load(state.extra)
            trainer.milestones.restored()
        self._announce(source, total, state)
        if group.first:
            where.link.send(self._plan_data(source, state, trainer.milestones))
        return self._train(trainer, saving, conductor)

    def _train(
        self,
        trainer: FreeTrainer,
        saving: checkpointing.WorkerCheckpoints,
        conductor: LinkConductor,
    ) -> dict[str, Any]:
        started, first_row = time.perf_counter(), trainer.position.rows
        try:
            status = trainer.run()
            saving.complete()
        finally:
            saving.close()
            conductor.close()
        seconds = time.perf_counter() - started
        summary = {
            "status": status,
            "epoch": trainer.position.epoch,
            "own_rows": trainer.position.rows - first_row,
            "seconds": seconds,
            "stopped_early": trainer.milestones.finished_early,
            "metrics": trainer.milestones.metrics,
            "history": trainer.milestones.history,
            "own_steps": trainer.times.steps,
            "seconds_per_step": trainer.times.per_step(),
            "client": trainer.strategy.summary(),
        }
        trainer.strategy.close()
        return summary

    def _position(self, parts: FreeParts, state: TrainingState | None) -> Position:
        if state is None:
            return Position()
        checkpointing.restore_model(parts, state)
        return Position(**state.extra["position"])

    def _announce(self, source: Source, total: int | None, state: TrainingState | None) -> None:
        if self._where.link.spec.attempt:
            return  # it takes another's place; the job has begun long ago
        rows = {"train_rows": len(source)} if isinstance(source, IndexedSource) else {}
        step, trained = 0, 0
        if state is not None:
            counts = state.extra["plan"]["plan"]["rows"]
            step, trained = state.step, counts["applied"] + counts["dropped"]
        self._build.announce(total, step, trained, **rows)

    def _policy(self) -> ConsistencyPolicy:
        strategy = self._settings.strategy
        assert isinstance(strategy, ParameterServer)
        if strategy.consistency == "bounded":
            return Bounded(strategy.staleness)
        return Asynchronous()

    def _plan_data(
        self, source: Source, state: TrainingState | None, milestones: Milestones
    ) -> PlanData:
        spec, progress = self._where.link.spec, milestones.dump()
        before = None
        if state is not None:
            # Early stopping may have ended the run: then it does not train on.
            before = {**state.extra["plan"], "over": milestones.finished_early}
        if isinstance(source, IterableSource):
            return PlanData(spec, "shares", [spec.world], before, None, progress)
        if isinstance(source, IndexedSource):
            return PlanData(spec, "rows", [len(source)], before, None, progress)
        shards, homes = source.shards(), None
        if isinstance(source, SpooledSource):
            homes = [int(shard.path) for shard in shards]
            if before is not None:
                before["other_parts"] = checkpointing.other_parts(state, self._where.payload)
        return PlanData(spec, "shards", [shard.rows for shard in shards], before, homes, progress)

    def _batches(self, source: Source) -> int | None:
        """Batches of an epoch, if that can be known."""
        size, drop = self._settings.batch_size, self._settings.loading.drop_last
        if isinstance(source, IterableSource):
            return None
        rows = (
            [len(source)]
            if isinstance(source, IndexedSource)
            else [shard.rows for shard in source.shards()]
        )
        return sum(
            count // size if drops(drop, count, size) else -(-count // size) for count in rows
        )

    def _reader(self, source: Source, binder: Binder) -> TaskReader:
        settings, loading = self._settings, self._settings.loading
        size, seed = settings.batch_size, settings.seed
        transform = opening.training_transform(settings, source, binder, seed * 65_537)
        if isinstance(source, IterableSource):
            shares = self._where.link.spec.world
            return SharedTasks(source, shares, seed, binder, transform, size)
        if isinstance(source, IndexedSource):
            plan = IndexedPlan(len(source), size, 1, seed, loading.shuffle)
            return IndexedTasks(source, plan.order, binder, transform, size)
        window = loading.window(size) if loading.shuffle else None
        return StreamedTasks(source, binder, transform, size, seed, window)
