"""A loaded checkpoint of a run: its own model, and its tables, memory-mapped."""

import threading
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from flambeau.checkpoint import RunDirectory, parse_reference, resolve
from flambeau.inference.export_description import Bound
from flambeau.inference.given_rows import as_records
from flambeau.inference.loaded_export import ROWS_AT_ONCE, bind
from flambeau.runs.open_data import fitted_pipeline
from flambeau.runs.run_export import describe_run
from flambeau.runs.stored_code import allow_code
from flambeau.runs.trained_run import load_model, read_settings

if TYPE_CHECKING:
    from flambeau.features.pipeline import Pipeline


@final
class LoadedRun:
    """Predictor of a run. Thread-safe, but calls run one after the other."""

    def __init__(
        self, id: str, model: Any, description: Bound, pipeline: "Pipeline | None" = None
    ) -> None:
        self.id = id
        self._model, self._description, self._pipeline = model, description, pipeline
        self._lock = threading.Lock()

    def predict(self, data: Any) -> pa.Table:
        """Return existing keys and predictions, one row for each row of the data."""
        records = as_records(data, self._description.columns)
        binder, scorer = bind(self._description, records.schema, self._model, self._pipeline)
        pieces = range(0, records.num_rows, ROWS_AT_ONCE)
        batches = [binder.read(records.slice(start, ROWS_AT_ONCE)) for start in pieces]
        with self._lock:
            return pa.Table.from_batches([scorer.score(batch, binder) for batch in batches])


def open_loaded_run(reference: str, loaded: str | None, *, trust: bool) -> LoadedRun | None:
    """Return the run's checkpoint, ready to predict; None if it is the one `loaded`."""
    path, which = parse_reference(reference)
    run = RunDirectory(path)
    settings = read_settings(run)
    checkpoint = resolve(run, which)
    if checkpoint.name == loaded:
        return None
    if loaded is None:
        allow_code(run, settings, trust=trust)
    model = load_model(run, settings, checkpoint.name)
    pipeline = None if settings.features is None else fitted_pipeline(run)
    return LoadedRun(checkpoint.name, model, describe_run(run, settings, model), pipeline)
