"""Metrics of a run's model: over all data in one process, or part by part in several."""

import math
from collections.abc import Callable, Iterator
from typing import final

import msgspec
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.config import JobSettings
from flambeau.coordination.payloads import Part
from flambeau.data.batch import Batch
from flambeau.data.loader import in_order
from flambeau.data.source import IndexedSource, Source, StreamedSource
from flambeau.inference.parts import PART_ROWS, batches_of, cut_parts
from flambeau.runs import open_data, open_model
from flambeau.runs.dry_run import suit
from flambeau.strategies.group import Solo
from flambeau.training.evaluation import Scores, accumulate, evaluate, scores
from flambeau.training.losses import Loss
from flambeau.training.metric_set import MetricSet

#: Parts for each process, so that all processes end at about the same time.
PARTS_EACH = 4


class _PartState(msgspec.Struct):
    """Contribution of one part: the sum of loss x rows, the rows, and the states of all metrics."""

    loss_sum: float
    rows: int
    metrics: bytes


@final
class Evaluation:
    """Evaluation of a run's model on a source with metrics, in this process."""

    def __init__(
        self,
        run: RunDirectory,
        settings: JobSettings,
        model: nn.Module,
        source: Source,
        metrics: tuple[str, ...],
    ) -> None:
        self._settings, self._model, self._source, self._names = settings, model, source, metrics
        self._size = settings.evaluation_rows
        self._loss = open_model.open_loss(settings, open_model.code_loader(run))
        self._transform = open_data.image_transform(
            settings.images, source, train=False, seed=settings.seed
        )
        whole = open_data.wants_whole_batch(settings)
        binder = open_data.make_binder(settings, model, source, whole_batch=whole)
        self._binder = suit(model, source, binder, self._transform)

    def scores(self) -> Scores:
        """Evaluate on all rows of the source."""
        batches = self._prepared(in_order(self._source, self._binder, self._size))
        metrics = _metric_set(self._names, self._loss, self._settings)
        return evaluate(self._model, batches, self._binder, self._loss, metrics, Solo())

    def part_state(self, part: Part, count: Callable[[int], None]) -> bytes:
        """Evaluate on a part, for `MergedScores`; `count` is called with the rows of each batch."""
        batches = self._prepared(batches_of(self._source, part, self._binder, self._size))
        metrics = _metric_set(self._names, self._loss, self._settings)
        totals = accumulate(
            self._model, _counted(batches, count), self._binder, self._loss, metrics
        )
        loss_sum, rows = totals.tolist()
        return msgspec.msgpack.encode(_PartState(loss_sum, int(rows), metrics.state()))

    def _prepared(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        return batches if self._transform is None else map(self._transform, batches)


@final
class MergedScores:
    """States of parts, merged in the order of the parts, in whatever order they arrive."""

    def __init__(self, run: RunDirectory, settings: JobSettings, metrics: tuple[str, ...]) -> None:
        self._loss = open_model.open_loss(settings, open_model.code_loader(run))
        self._metrics = _metric_set(metrics, self._loss, settings)
        self._loss_sum, self._rows = 0.0, 0
        self._early: dict[int, bytes] = {}
        self._next = 0

    def add(self, part: int, state: bytes) -> None:
        """Merge the state of a part as soon as those before it are merged."""
        self._early[part] = state
        while (found := self._early.pop(self._next, None)) is not None:
            decoded = msgspec.msgpack.decode(found, type=_PartState)
            self._loss_sum += decoded.loss_sum
            self._rows += decoded.rows
            self._metrics.add(decoded.metrics)
            self._next += 1

    def scores(self) -> Scores:
        """Return the metrics over all parts."""
        assert not self._early, "a part is missing"
        loss_sum = None if self._loss is None else self._loss_sum
        return scores(loss_sum, self._rows, self._metrics.values())


def cut_for_evaluation(source: Source, settings: JobSettings, workers: int) -> list[Part]:
    """Cut a source into parts for a number of processes; rows by number into whole batches."""
    rows = 0
    if isinstance(source, StreamedSource):
        rows = sum(shard.rows for shard in source.shards())
    elif isinstance(source, IndexedSource):
        rows = len(source)
    size = settings.evaluation_rows
    most = max(1, PART_ROWS // size)
    batches = math.ceil(rows / (PARTS_EACH * workers) / size)
    return cut_parts(source, size * max(1, min(most, batches)))


def _metric_set(names: tuple[str, ...], loss: Loss | None, settings: JobSettings) -> MetricSet:
    return MetricSet(names, loss, settings.evaluation.exact_rows)


def _counted(batches: Iterator[Batch], count: Callable[[int], None]) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        count(batch.size)
