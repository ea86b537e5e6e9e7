"""The worker role: builds the parts of a training and runs its loop."""

import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child import ChildSpec
from flambeau.config import JobSettings
from flambeau.coordination.link import Link
from flambeau.data import IndexedSource
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.loader import Loader
from flambeau.job import checkpointing, opening
from flambeau.job.opening import LoadCode, Place
from flambeau.job.process_group import backend_of, pick_device, process_group
from flambeau.job.rehearsal import rehearse
from flambeau.strategies import sync_batch_norm
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, Strategy
from flambeau.strategies.group import Group, ProcessGroup, Solo
from flambeau.training import randomness
from flambeau.training.best import Best
from flambeau.training.callbacks import Callback, Callbacks, TrainingView
from flambeau.training.evaluation import Autocast, Scores, evaluate
from flambeau.training.loop import Trainer, TrainingParts, total_steps
from flambeau.training.losses import Loss
from flambeau.training.metric_set import MetricSet
from flambeau.training.optimizers import build_optimizers, scale_learning_rates
from flambeau.training.position import Position
from flambeau.training.profiling import Profiler
from flambeau.training.schedules import build_schedule
from flambeau.training.step import OwnStep, StandardStep, Step, StepContext


def work(child: ChildSpec, link: Link, listener: socket.socket | None) -> dict[str, Any]:
    """Train; the summary that goes into the result (the first worker's counts)."""
    settings = JobSettings.parse(child.payload["settings"])
    run = RunDirectory(child.payload["run_dir"])
    device = pick_device(settings.compute.device, child.spec.local_rank)
    with contextlib.ExitStack() as stack:
        group: Group = Solo()
        if child.spec.world > 1:
            stack.enter_context(process_group(link, listener, backend_of(device)))
            group = ProcessGroup()
        worker = Worker(settings, run, link, group, device, child.payload)
        return worker.run()


class Worker:
    """One worker's training, put together."""

    def __init__(
        self,
        settings: JobSettings,
        run: RunDirectory,
        link: Link,
        group: Group,
        device: torch.device,
        payload: dict[str, Any],
    ) -> None:
        self._settings, self._run, self._link = settings, run, link
        self._group, self._device, self._payload = group, device, payload
        self._load_code: LoadCode = opening.code_loader(run)
        self._autocast = _autocast(settings.compute.precision, device)
        self._loss = self._open_loss()

    def run(self) -> dict[str, Any]:
        """Build everything, go on from a checkpoint if there is one, train, and summarise."""
        settings, group = self._settings, self._group
        state = self._find_checkpoint()
        randomness.seed_all(settings.seed)
        source = opening.open_data(settings.train, self._load_code, settings.binding.maskable)
        model = self._build_model(fresh=state is None)
        binder = opening.make_binder(
            settings, model, source, whole_batch=opening.wants_whole_batch(settings)
        )
        place = Place(group.rank, group.size)
        loader = opening.make_loader(source, settings, binder, place, train=True)
        if settings.step is None and self._loss is not None:
            look = opening.image_transform(settings.images, source, train=False, seed=0)
            rehearse(model, source, binder, self._loss, look)
        position = Position()
        by_row = isinstance(source, IndexedSource)
        if state is not None:
            position = checkpointing.restored_position(state, group.size, by_row=by_row)
        parts = self._assemble(model, binder, loader, position)
        randomness.seed_all(settings.seed, group.rank)
        saving = checkpointing.WorkerCheckpoints(self._run, settings, parts)
        parts.saving = saving
        if state is not None:
            checkpointing.restore_model(parts, state)
        trainer = Trainer(settings, parts, position, self._best())
        saving.trainer = trainer
        if state is not None:
            checkpointing.restore_progress(trainer, state, group.rank, group.size)
        return self._train(trainer, saving, source)

    def _train(
        self, trainer: Trainer, saving: checkpointing.WorkerCheckpoints, source: Any
    ) -> dict[str, Any]:
        started, first_row = time.perf_counter(), trainer.position.rows
        self._announce(trainer, source)
        try:
            status = trainer.run()
        finally:
            saving.close()
        seconds = time.perf_counter() - started
        position = trainer.position
        return {
            "status": status,
            "step": position.step,
            "epoch": position.epoch,
            "rows": position.rows,
            "rows_repeated": position.repeated,
            "seconds": seconds,
            "rows_per_second": (position.rows - first_row) / max(seconds, 1e-9),
            "stopped_early": trainer.finished_early,
            "metrics": trainer.metrics,
            "history": trainer.history,
        }

    def _find_checkpoint(self) -> Any:
        restarted = self._link.spec.generation > 0
        if not (self._payload["resume"] or restarted):
            return None
        return checkpointing.find_checkpoint(self._run, self._group, self._warn)

    def _build_model(self, *, fresh: bool) -> nn.Module:
        model = opening.build_model(self._settings.model, self._load_code).to(self._device)
        initial = self._payload.get("init_from")
        if initial is not None and fresh:
            patterns = self._payload.get("init_patterns")
            warn = self._warn if self._group.first else _say_nothing
            checkpointing.load_initial_weights(model, initial, patterns, warn)
        strategy = self._settings.strategy
        if strategy.sync_batch_norm and self._group.size > 1:
            model = sync_batch_norm.convert(model)
        return model

    def _assemble(
        self, model: nn.Module, binder: Binder, loader: Loader, position: Position
    ) -> TrainingParts:
        settings, group, compute = self._settings, self._group, self._settings.compute
        optimizers = build_optimizers(settings.optimizer, model, self._load_code)
        scale_learning_rates(optimizers, group.size, compute.lr_scaling)
        clipping = Clipping(compute.clip_norm, compute.clip_value)
        strategy = AllReduceStrategy(settings.strategy, group, clipping)
        forward = strategy.attach(model, optimizers, own_step=settings.step is not None)
        total, per_epoch = total_steps(settings, loader, position), loader.steps()
        schedules = {
            name: build_schedule(settings.schedule, optimizer, total, per_epoch, self._load_code)
            for name, optimizer in optimizers.items()
        }
        view = TrainingView(
            model=model,
            optimizers=optimizers,
            run_dir=self._run.path,
            rank=group.rank,
            workers=group.size,
            log=self._log_scalars,
            arguments=binder.arguments,
        )
        self._view = view
        if compute.compile:
            forward = torch.compile(forward)
        return TrainingParts(
            model=model,
            optimizers=optimizers,
            schedules=schedules,
            strategy=strategy,
            group=group,
            loader=loader,
            step=self._make_step(forward, model, optimizers, binder, strategy),
            callbacks=Callbacks(self._callbacks()),
            view=view,
            evaluate=self._make_evaluation(model),
            saving=_NotYet(),
            report=self._link.report,
            stop_requested=lambda: self._link.stop_requested,
            device=self._device,
        )

    def _make_step(
        self,
        forward: Callable[..., Any],
        model: nn.Module,
        optimizers: dict[str, torch.optim.Optimizer],
        binder: Binder,
        strategy: Strategy,
    ) -> Step:
        settings = self._settings
        if settings.step is None:
            assert self._loss is not None
            accumulate = settings.compute.accumulate
            return StandardStep(forward, binder, self._loss, strategy, self._autocast, accumulate)
        context = StepContext(
            model,
            optimizers,
            binder,
            strategy,
            self._log_scalars,
            self._group.rank,
            self._group.size,
        )
        return OwnStep(self._load_code(settings.step), context)

    def _make_evaluation(self, model: nn.Module) -> Callable[[], Scores] | None:
        settings, group = self._settings, self._group
        if settings.valid is None or settings.evaluator:
            return None
        source = opening.open_data(settings.valid, self._load_code, settings.binding.maskable)
        whole = opening.wants_whole_batch(settings)
        binder = opening.make_binder(settings, model, source, whole_batch=whole)
        place = Place(group.rank, group.size)
        loader = opening.make_loader(source, settings, binder, place, train=False)
        exact_rows = settings.evaluation.exact_rows
        MetricSet(settings.metrics, self._loss, exact_rows)  # unknown names are found now
        if self._loss is not None:
            look = opening.image_transform(settings.images, source, train=False, seed=0)
            rehearse(model, source, binder, self._loss, look, "valid")

        def run() -> Scores:
            return evaluate(
                model,
                _batches(loader),
                binder,
                self._loss,
                MetricSet(settings.metrics, self._loss, exact_rows),
                group,
                self._autocast,
                self._device,
            )

        return run

    def _open_loss(self) -> Loss | None:
        if self._settings.step is not None and self._settings.loss is None:
            return None
        return opening.open_loss(self._settings, self._load_code)

    def _callbacks(self) -> list[Callback]:
        callbacks: list[Callback] = []
        for ref in self._settings.callbacks:
            found = self._load_code(ref)
            callbacks.append(found() if isinstance(found, type) else found)
        profile = self._settings.observe.profile
        if profile is not None:
            callbacks.append(Profiler(profile[0], profile[1], Path(self._run.tensorboard)))
        return callbacks

    def _best(self) -> Best | None:
        settings = self._settings
        if settings.valid is None or settings.evaluator:
            return None
        metric = settings.checkpoints.best
        if metric == "loss" and self._loss is None:
            # With a step of the user's own there may be no loss to judge by.
            if not settings.metrics:
                return None
            metric = settings.metrics[0]
        return Best(metric, settings.checkpoints.mode)

    def _announce(self, trainer: Trainer, source: Any) -> None:
        if not self._group.first:
            return
        settings = self._settings
        fields: dict[str, Any] = {}
        if isinstance(source, IndexedSource):
            fields["train_rows"] = len(source)
        self._link.report(
            "job_start",
            name=self._run.path.name,
            workers=self._group.size,
            batch_size=settings.batch_size,
            global_batch=settings.batch_size * self._group.size,
            steps_total=trainer.steps_total,
            epochs=settings.epochs,
            run_dir=str(self._run.path),
            resumed_step=trainer.position.step,
            resumed_rows=trainer.position.rows,
            **fields,
        )

    def _log_scalars(self, values: dict[str, float]) -> None:
        if self._group.first:
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            self._link.report("scalars", step=self._view.step, values=finite)

    def _warn(self, text: str) -> None:
        self._link.report("warning", text=text)


class _NotYet:
    """Stands in until the parts that saving needs exist."""

    def save(self, metrics: dict[str, float], *, best: bool) -> None:
        raise AssertionError("saving before the worker was put together")


def _autocast(precision: str, device: torch.device) -> Autocast:
    if precision == "bf16":
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext


def _batches(loader: Loader) -> Iterator[Batch]:
    steps = loader.epoch(0)
    try:
        for step in steps:
            if step.batch is not None:
                yield step.batch
    finally:
        steps.close()


def _say_nothing(text: str) -> None:
    """Only the first worker warns."""
