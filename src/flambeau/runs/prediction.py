"""Predictions of a run's model, part by part, in one process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from flambeau.checkpoint import RunDirectory
from flambeau.config import JobSettings
from flambeau.coordination.payloads import Part
from flambeau.data.binding import Binder
from flambeau.data.read_ahead import ReadAhead
from flambeau.data.source import Source
from flambeau.errors import ConfigError
from flambeau.inference.parts import PART_ROWS, batches_of, cut_parts
from flambeau.inference.scorer import Scorer
from flambeau.runs import open_data
from flambeau.runs.dry_run import suit
from flambeau.runs.trained_run import load_model, loss_names

READ_AHEAD = 4


@dataclass(frozen=True)
class PredictionOptions:
    """Options for predictions; None selects a suitable default.

    - `workers`: number of processes that fill a folder, by default one for each core and part;
    - `batch_size`: number of rows, by default as in evaluation;
    - `part_rows`: approximate number of rows of a file in a folder.
    """

    workers: int | None = None
    batch_size: int | None = None
    part_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "batch_size", "part_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: give at least 1")

    def parts(self, source: Source) -> list[Part]:
        """Return the parts of a source."""
        return cut_parts(source, self.part_rows or PART_ROWS)


@final
class Prediction:
    """A run's model with its data and their binding, in this process."""

    def __init__(
        self,
        run: RunDirectory,
        settings: JobSettings,
        which: str,
        source: Source,
        batch_size: int | None,
    ) -> None:
        self.source = source
        self.size = batch_size or settings.evaluation_rows
        model = load_model(run, settings, which)
        transform = open_data.image_transform(
            settings.images, source, train=False, seed=settings.seed
        )
        self.binder = suit(model, source, _binder(settings, model, source), transform)
        self.copied = copied_columns(settings, self.binder)
        self._scorer = Scorer(model, loss_names(settings), self.copied, transform)

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the predictions of a part; a thread reads the next rows meanwhile."""
        ahead = ReadAhead(batches_of(self.source, part, self.binder, self.size), READ_AHEAD)
        try:
            for batch in ahead:
                yield self._scorer.score(batch, self.binder)
        finally:
            ahead.close()


def counted(
    batches: Iterator[pa.RecordBatch], count: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, calling `count` with the number of rows of each."""
    for batch in batches:
        count(batch.num_rows)
        yield batch


def _binder(settings: JobSettings, model: Any, source: Source) -> Binder:
    """Make the binding without training-only settings; with the label, if the data has it."""
    given = settings.binding
    has = open_data.shape_of(source).columns
    label = given.label if set(given.labels) <= set(has) else None
    # Labels are copied as they are in the data, where a missing label may have any value.
    unused: dict[str, Any] = {"label_map": {}, "weight": None, "group": None}
    kept = given.model_copy(update={"label": label, **unused})
    bound = settings.model_copy(update={"binding": kept})
    return open_data.make_binder(bound, model, source, whole_batch=False)


def copied_columns(settings: JobSettings, binder: Binder) -> tuple[str, ...]:
    """Return the keys and labels, each once."""
    return tuple(dict.fromkeys([*settings.binding.keys, *binder.label_columns()]))
