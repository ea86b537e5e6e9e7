"""Evaluation on the validation data by all workers together."""

import functools
from collections.abc import Callable, Iterator

from torch import nn

from flambeau.data.batch import Batch
from flambeau.data.loader import Loader
from flambeau.data.source import Source
from flambeau.roles.worker_context import WorkerContext
from flambeau.runs import open_data
from flambeau.runs.dry_run import dry_run
from flambeau.runs.open_data import Place
from flambeau.training.evaluation import Autocast, Scores, evaluate
from flambeau.training.losses import Loss
from flambeau.training.metric_set import MetricSet


def held_out_evaluation(
    context: WorkerContext,
    model: nn.Module,
    source: Source,
    loss: Loss | None,
    autocast: Autocast,
    exact_rows: int,
) -> Callable[[], Scores]:
    """Return a function that evaluates the model on `source`, of which each worker has a part."""
    settings = context.settings
    whole = open_data.wants_whole_batch(settings)
    binder = open_data.make_binder(settings, model, source, whole_batch=whole)
    MetricSet(settings.metrics, loss, exact_rows)  # raises now for unknown names
    if loss is not None:
        look = open_data.image_transform(settings.images, source, train=False, seed=0)
        binder = dry_run(model, source, binder, loss, look, "valid")

    @functools.lru_cache(maxsize=1)
    def loader_at(place: Place) -> Loader:
        return open_data.make_loader(source, settings, binder, place, train=False)

    def loader_here() -> Loader:
        return loader_at(Place(context.group.position, context.group.size))

    loader_here()  # raises now for errors in the data

    def run() -> Scores:
        loader = loader_here()
        metrics = MetricSet(settings.metrics, loss, exact_rows)
        batches = _batches(loader, context.coordinator.mark)
        return evaluate(
            model, batches, binder, loss, metrics, context.group, autocast, context.device
        )

    return run


def _batches(loader: Loader, mark: Callable[[], None]) -> Iterator[Batch]:
    """Yield all batches of validation data; mark each as progress."""
    steps = loader.epoch(0)
    try:
        for step in steps:
            mark()
            if step.batch is not None:
                yield step.batch
    finally:
        steps.close()
