"""The role of an asynchronous worker, which requests tasks from the coordinator one by one."""

import time
from typing import Any

import torch

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.store import TrainingState
from flambeau.config import JobSettings
from flambeau.config.strategies import ParameterServer
from flambeau.coordination.batch_cuts import drops
from flambeau.coordination.consistency import Asynchronous, Bounded, StalenessPolicy
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import Site
from flambeau.coordination.plans import IndexedPlan
from flambeau.coordination.task_messages import PlanData, StopRequest
from flambeau.coordination.tasks import Homes
from flambeau.data.binding import Binder
from flambeau.data.source import IndexedSource, IterableSource, Source
from flambeau.data.sources.engine_frames import EngineFrameSource
from flambeau.data.task_reader import IndexedTasks, SharedTasks, StreamedTasks, TaskReader
from flambeau.roles import worker_checkpoints
from flambeau.roles.worker_builder import WorkerBuilder, summarize
from flambeau.roles.worker_checkpoints import WorkerCheckpoints
from flambeau.roles.worker_context import WorkerContext
from flambeau.runs import open_data
from flambeau.strategies.coordinator_group import CoordinatorGroup
from flambeau.training.async_loop import AsyncTrainer
from flambeau.training.milestones import Milestones
from flambeau.training.position import Position
from flambeau.training.task_feed import TaskFeed

#: AUC is exact up to this many rows, since scores of all workers pass through the coordinator.
EXACT_ROWS = 200_000


def work_async(
    settings: JobSettings,
    run: RunDirectory,
    coordinator: CoordinatorClient,
    device: torch.device,
    site: Site,
) -> dict[str, Any]:
    """Train until all work is done; return the summary for the result."""
    context = WorkerContext(settings, run, coordinator, CoordinatorGroup(coordinator), device, site)
    return AsyncWorker(context).run()


class AsyncWorker:
    """A worker that trains at its own pace."""

    def __init__(self, context: WorkerContext) -> None:
        self._context, self._settings = context, context.settings
        self._build = WorkerBuilder(context)

    def run(self) -> dict[str, Any]:
        """Build everything, send the coordinator the plan data, train, and summarise."""
        settings, context, build = self._settings, self._context, self._build
        group, coordinator = context.group, context.coordinator
        assert isinstance(group, CoordinatorGroup)
        opened = build.open()
        state, source = opened.state, opened.source
        per_epoch = self._batches(source)
        total = None if per_epoch is None else per_epoch * settings.epochs
        planned = min(total or 0, settings.max_steps or total or 0) or None
        exact_rows = min(EXACT_ROWS, settings.evaluation.exact_rows)
        parts, saving = build.parts(opened, planned, per_epoch, exact_rows)
        feed = TaskFeed(
            coordinator,
            group,
            self._reader(source, opened.binder),
            self._policy(),
            settings.loading.read_ahead,
            limited=settings.max_steps is not None,
        )
        position = Position() if state is None else Position(**state.extra["position"])
        trainer = AsyncTrainer(
            settings,
            parts,
            position,
            build.best(),
            feed,
            lambda: coordinator.send(StopRequest(coordinator.spec)),
        )
        saving.follow(trainer.milestones)
        trainer.on_sync_point = saving.at
        if state is not None:
            trainer.milestones.load(state.extra)
            trainer.milestones.restored()
        self._announce(source, total, state)
        if group.first:
            coordinator.send(self._plan_data(source, state, trainer.milestones))
        return self._train(trainer, saving, feed)

    def _train(
        self, trainer: AsyncTrainer, saving: WorkerCheckpoints, feed: TaskFeed
    ) -> dict[str, Any]:
        started, first_row = time.perf_counter(), trainer.position.rows
        try:
            status = trainer.run()
            saving.complete()
        finally:
            saving.close()
            feed.close()
        summary = summarize(trainer, status, time.perf_counter() - started)
        return {**summary, "own_rows": trainer.position.rows - first_row}

    def _announce(self, source: Source, total: int | None, state: TrainingState | None) -> None:
        if self._context.coordinator.spec.attempt:
            return  # a replacement of another worker: the job has already begun
        rows = {"train_rows": len(source)} if isinstance(source, IndexedSource) else {}
        step, trained = 0, 0
        if state is not None:
            counts = state.extra["plan"]["plan"]["rows"]
            step, trained = state.step, counts["applied"] + counts["dropped"]
        self._build.announce(total, step, trained, **rows)

    def _policy(self) -> StalenessPolicy:
        strategy = self._settings.strategy
        assert isinstance(strategy, ParameterServer)
        if strategy.consistency == "bounded":
            return Bounded(strategy.staleness)
        return Asynchronous()

    def _plan_data(
        self, source: Source, state: TrainingState | None, milestones: Milestones
    ) -> PlanData:
        spec, progress = self._context.coordinator.spec, milestones.dump()
        before = None
        if state is not None:
            # Early stopping may have ended the run: then training does not continue.
            before = {**state.extra["plan"], "over": milestones.finished_early}
        if isinstance(source, IterableSource):
            return PlanData(spec, "shares", [spec.world], before, None, progress)
        if isinstance(source, IndexedSource):
            return PlanData(spec, "rows", [len(source)], before, None, progress)
        shards, homes = source.shards(), None
        if isinstance(source, EngineFrameSource):
            homes = Homes(source.shard_homes, source.agents_of(spec.world))
            if state is not None and before is not None:
                other = worker_checkpoints.has_other_frames(state, self._context)
                before["other_frames"] = other
        return PlanData(spec, "shards", [shard.rows for shard in shards], before, homes, progress)

    def _batches(self, source: Source) -> int | None:
        """Return the number of batches of an epoch; None if it cannot be known."""
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
        transform = open_data.training_transform(settings, source, binder, seed * 65_537)
        if isinstance(source, IterableSource):
            shares = self._context.coordinator.spec.world
            return SharedTasks(source, shares, seed, binder, transform, size)
        if isinstance(source, IndexedSource):
            plan = IndexedPlan(len(source), size, 1, seed, loading.shuffle)
            return IndexedTasks(source, plan.order, binder, transform, size)
        window = loading.window(size) if loading.shuffle else None
        return StreamedTasks(source, binder, transform, size, seed, window)
