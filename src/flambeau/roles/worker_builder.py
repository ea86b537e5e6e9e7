"""The parts of a training that all kinds of workers need, built from a job's settings."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.references import checkpoint_path, parse_reference, resolve
from flambeau.checkpoint.store import TrainingState
from flambeau.config import DataRef, SpooledData
from flambeau.config.strategies import ParameterServer
from flambeau.data.binding import Binder
from flambeau.data.source import Source, StreamedSource
from flambeau.data.sources.shared_files import located
from flambeau.embeddings.attach import begin_without_rows, tables_of
from flambeau.roles import worker_checkpoints
from flambeau.roles.worker_checkpoints import WorkerCheckpoints
from flambeau.roles.worker_context import WorkerContext
from flambeau.roles.worker_evaluation import held_out_evaluation
from flambeau.roles.worker_reports import WorkerReports
from flambeau.roles.worker_strategy import make_strategy
from flambeau.runs import open_data, open_model
from flambeau.runs.dry_run import dry_run
from flambeau.runs.open_model import LoadCode
from flambeau.strategies import sync_batch_norm
from flambeau.strategies.base import SavingContext, Strategy, TableCheckpoints
from flambeau.training import randomness
from flambeau.training.async_loop import AsyncTrainer
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, Callbacks, TrainingView
from flambeau.training.evaluation import Autocast, Scores
from flambeau.training.half_precision import bf16_slowdown, bf16_warning
from flambeau.training.loop import Trainer
from flambeau.training.optimizers import build_optimizers, scale_learning_rates
from flambeau.training.parts import TrainingParts
from flambeau.training.profiling import Profiler
from flambeau.training.schedules import LearningRate, build_schedule
from flambeau.training.step import OwnStep, StandardStep, Step, StepContext
from flambeau.training.step_times import StepTimes
from flambeau.training.train_metrics import TrainMetrics


@dataclass(frozen=True)
class Optimizers:
    """The torch optimizers by name, and the first one's learning rate before any change.

    The rates of tables follow that one: they change by the same factor.
    """

    by_name: dict[str, Optimizer]
    first_rate: float


@dataclass(frozen=True)
class Opened:
    """Result of `WorkerBuilder.open`: state to resume from, data, model, and how these bind."""

    state: TrainingState | None
    source: Source
    model: nn.Module
    binder: Binder


@final
class WorkerBuilder:
    """A builder of the parts of one worker."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        self.settings = context.settings
        self.load_code: LoadCode = open_model.code_loader(context.run)
        self.autocast = _autocast(context.settings.compute.precision, context.device)
        self.loss = open_model.open_loss(self.settings, self.load_code)
        evaluation = context.settings.evaluation
        self._trained = (
            TrainMetrics(context.settings.metrics, self.loss, evaluation.exact_rows)
            if evaluation.train
            else None
        )
        self._opened: list[Source] = []

    def open(self) -> Opened:
        """Open the model, the data, and the checkpoint that the coordinator has chosen."""
        context = self.context
        state = worker_checkpoints.starting_state(context.run, context.coordinator)
        randomness.seed_all(self.settings.seed)
        source = self.source()
        model = self.model(fresh=state is None)
        return Opened(state, source, model, self.binder(model, source))

    def parts(
        self, opened: Opened, total: int | None, per_epoch: int | None, exact_rows: int
    ) -> tuple[TrainingParts, WorkerCheckpoints]:
        """Build the parts of a training loop, restored from the checkpoint, and what saves them.

        `total` and `per_epoch` are the steps of the whole training and of an epoch, if known.
        """
        context, settings, model = self.context, self.settings, opened.model
        optimizers = self.optimizers(model)
        strategy = make_strategy(context, model, optimizers.first_rate)
        forward = strategy.attach(model, optimizers.by_name, own_step=settings.step is not None)
        times = StepTimes(strategy.table_seconds)
        reports = WorkerReports(context.coordinator, strategy, times)
        parts = TrainingParts(
            model=model,
            optimizers=optimizers.by_name,
            schedules=self.schedules(optimizers, total, per_epoch),
            strategy=strategy,
            group=context.group,
            step=self.step(forward, model, optimizers, opened.binder, strategy),
            callbacks=Callbacks([*self.callbacks(), reports]),
            view=self.view(model, optimizers, opened.binder),
            evaluate=self.evaluation(model, exact_rows),
            saving=worker_checkpoints.NotYet(),
            report=context.coordinator.report,
            times=times,
            device=context.device,
        )
        randomness.seed_all(settings.seed, context.group.rank)
        saving = WorkerCheckpoints(
            context.run,
            settings,
            parts,
            self._tables(opened, strategy),
            context.site.frames_digest,
        )
        parts.saving = saving
        if opened.state is not None:
            worker_checkpoints.restore_model(parts, opened.state)
        return parts, saving

    def source(self) -> Source:
        """Open the training data."""
        return self._open(self.settings.train)

    def model(self, *, fresh: bool) -> nn.Module:
        """Build the model on its device; if `fresh`, load another run's weights if requested."""
        settings, context = self.settings, self.context
        model = open_model.build_job_model(settings, self.load_code).to(context.device)
        initial = context.site.initial
        begin_without_rows(model, others=initial is not None or not fresh)
        if initial is not None and fresh:
            worker_checkpoints.load_initial_weights(model, initial, context.warn)
        if getattr(settings.strategy, "sync_batch_norm", False) and context.group.size > 1:
            model = sync_batch_norm.convert(model)
        return model

    def binder(self, model: nn.Module, source: Source) -> Binder:
        """Bind columns to the arguments of the model; try two rows if possible."""
        settings = self.settings
        whole = open_data.wants_whole_batch(settings)
        binder = open_data.make_binder(settings, model, source, whole_batch=whole)
        if settings.step is None and self.loss is not None:
            look = open_data.image_transform(settings.images, source, train=False, seed=0)
            binder = dry_run(model, source, binder, self.loss, look)
        return binder

    def optimizers(self, model: nn.Module) -> Optimizers:
        """Build the optimizers of the dense weights."""
        built = build_optimizers(self.settings.optimizer, model, self.load_code)
        first = float(next(iter(built.values())).param_groups[0]["lr"])
        scale_learning_rates(built, self.context.group.size, self.settings.compute.lr_scaling)
        return Optimizers(built, first)

    def schedules(
        self, optimizers: Optimizers, total: int | None, per_epoch: int | None
    ) -> dict[str, LearningRate]:
        """Build the learning rate schedule of each optimizer, by its name."""
        best = self.best()
        watched = best.metric if best is not None else None
        return {
            name: build_schedule(
                self.settings.schedule, optimizer, total, per_epoch, self.load_code, watched
            )
            for name, optimizer in optimizers.by_name.items()
        }

    def view(self, model: nn.Module, optimizers: Optimizers, binder: Binder) -> TrainingView:
        """Build the view of the training that callbacks receive."""
        self._view = TrainingView(
            model=model,
            optimizers=optimizers.by_name,
            run_dir=self.context.run.path,
            rank=self.context.group.rank,
            workers=self.context.group.size,
            log=self._log_scalars,
            arguments=binder.arguments,
        )
        return self._view

    def step(
        self,
        forward: Callable[..., Any],
        model: nn.Module,
        optimizers: Optimizers,
        binder: Binder,
        strategy: Strategy,
    ) -> Step:
        """Build the built-in step, or the user's own."""
        settings, group = self.settings, self.context.group
        compiling = settings.compute.compile
        if compiling:
            forward = torch.compile(forward, mode=None if compiling is True else compiling)
        if settings.step is None:
            assert self.loss is not None
            accumulate = settings.compute.accumulate
            return StandardStep(
                forward, binder, self.loss, strategy, self.autocast, accumulate, self._trained
            )
        context = StepContext(
            model,
            optimizers.by_name,
            binder,
            strategy,
            self._log_scalars,
            group.rank,
            group.size,
        )
        return OwnStep(self.load_code(settings.step), context)

    def evaluation(self, model: nn.Module, exact_rows: int) -> Callable[[], Scores] | None:
        """Return a function that evaluates the model with all workers; None if not configured."""
        valid = self.settings.valid
        held_out = None
        if valid is not None and not self.settings.evaluator:
            source = self._open(open_data.validation_data(self.settings))
            held_out = held_out_evaluation(
                self.context, model, source, self.loss, self.autocast, exact_rows
            )
        trained = self._trained
        if trained is None:
            if valid is None and self.settings.metrics:
                self.context.warn(
                    f"metrics={list(self.settings.metrics)} have no data: give valid=, or "
                    "evaluation={'train': True} for those of the rows that are trained on"
                )
            return held_out
        trained.limit(exact_rows)

        def run() -> Scores:
            scores = held_out() if held_out is not None else Scores({}, 0)
            metrics = trained.results(self.context.group)
            return Scores({**scores.metrics, **metrics}, scores.rows)

        return run

    def callbacks(self) -> list[Callback]:
        """Load the user's callbacks, and build those that the settings require."""
        callbacks: list[Callback] = []
        for ref in self.settings.callbacks:
            found = self.load_code(ref)
            callbacks.append(found() if isinstance(found, type) else found)
        profile = self.settings.observe.profile
        if profile is not None:
            callbacks.append(Profiler(profile[0], profile[1], Path(self.context.run.tensorboard)))
        return callbacks

    def best(self) -> Best | None:
        """Return the criterion for the best checkpoint, if the workers evaluate."""
        settings = self.settings
        if settings.valid is None or settings.evaluator:
            return None
        metric = settings.checkpoints.best
        if metric == "loss" and self.loss is None:
            # With the user's own step there may be no loss to compare.
            if not settings.metrics:
                return None
            metric = settings.metrics[0]
        return Best(metric, settings.checkpoints.mode)

    def announce(self, steps_total: int | None, step: int, rows: int, **more: Any) -> None:
        """Report that the training begins, from the first worker only."""
        settings, group = self.settings, self.context.group
        if not group.first:
            return
        skipped = sum(map(open_data.skipped_rows, self._opened))
        if skipped:
            self.context.warn(open_data.skipped_text(skipped))
        self._warn_of_slow_bf16()
        strategy = settings.strategy
        free = isinstance(strategy, ParameterServer) and not strategy.lockstep
        together = 1 if free else group.size
        self.context.coordinator.report(
            "job_start",
            name=self.context.run.path.name,
            workers=group.size,
            batch_size=settings.batch_size,
            global_batch=settings.batch_size * together,
            steps_total=steps_total,
            epochs=settings.epochs,
            run_dir=str(self.context.run.path),
            resumed_step=step,
            resumed_rows=rows,
            skipped_rows=skipped,
            **more,
        )

    def _tables(self, opened: Opened, strategy: Strategy) -> TableCheckpoints:
        """Return what saves the tables; load them from the initial checkpoint, if any."""
        context = self.context
        specs = tables_of(opened.model)
        tables = strategy.table_checkpoints(
            SavingContext(self.settings, context.run, context.coordinator, specs)
        )
        initial = context.site.initial
        if opened.state is not None:
            tables.load(checkpoint_path(context.run, opened.state.step))
        elif initial is not None:
            path, which = parse_reference(initial.reference)
            tables.load(resolve(RunDirectory(path), which))
        return tables

    def _warn_of_slow_bf16(self) -> None:
        if self.settings.compute.precision != "bf16" or self.context.device.type != "cpu":
            return
        text = bf16_warning(bf16_slowdown())
        if text is not None:
            self.context.warn(text)

    def _open(self, data: DataRef) -> Source:
        if isinstance(data, SpooledData):
            source: Source = open_data.open_spooled(data, self.context.site)
        else:
            found = located(data, self.context.run.path)
            source = open_data.open_data(found, self.load_code, self.settings.binding)
        source = open_data.attach_features(source, self.context.run, self.settings, data)
        self._opened.append(source)
        for text in source.warnings if isinstance(source, StreamedSource) else ():
            self.context.warn(text)
        return source

    def _log_scalars(self, values: dict[str, float]) -> None:
        if self.context.group.first:
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            self.context.coordinator.report("scalars", step=self._view.step, values=finite)


def summarize(trainer: Trainer | AsyncTrainer, status: str, seconds: float) -> dict[str, Any]:
    """Return the final report of either kind of worker, and close the strategy."""
    summary = {
        "status": status,
        "epoch": trainer.position.epoch,
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


def _autocast(precision: str, device: torch.device) -> Autocast:
    if precision == "bf16":
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext
