"""The predictor role: predicts or evaluates parts of the data, one after the other."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import DatasetData, FileData, JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import ExportPayload, Part, PredictorPayload
from flambeau.data.source import Source
from flambeau.inference.writing import write_predictions
from flambeau.roles.part_loop import work_on_parts
from flambeau.runs.evaluation import Evaluation
from flambeau.runs.export_prediction import ExportPrediction
from flambeau.runs.prediction import Prediction, counted
from flambeau.runs.trained_run import load_model, open_given

#: A function that works on a part, calls its second argument with the number of rows of each
#: batch, and returns the part's result.
PartWork = Callable[[Part, Callable[[int], None]], bytes]


def predict_parts(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Predict or evaluate the parts that the coordinator assigns; return their number."""
    payload = child.payload
    if isinstance(payload, ExportPayload):
        write = _export_prediction(payload)
        numbered = {part.index: part for part in payload.parts}
        return {
            "parts": work_on_parts(coordinator, lambda number, rows: write(numbered[number], rows))
        }
    assert isinstance(payload, PredictorPayload)
    settings, run = JobSettings.parse(payload.settings), RunDirectory(child.site.run_dir)
    source = _open_source(payload, run, settings)
    prepare = _evaluation if payload.out is None else _prediction
    work, parts = prepare(payload, run, settings, source), {p.index: p for p in payload.parts}
    count = work_on_parts(coordinator, lambda number, rows: work(parts[number], rows))
    return {"parts": count}


def _prediction(
    payload: PredictorPayload, run: RunDirectory, settings: JobSettings, source: Source
) -> PartWork:
    """Return a function that writes the predictions of a part to its file."""
    assert payload.out is not None
    folder = Path(payload.out)
    prediction = Prediction(run, settings, payload.checkpoint, source, payload.batch_size)

    def write(part: Part, count: Callable[[int], None]) -> bytes:
        write_predictions(counted(prediction.batches(part), count), folder / part.file_name)
        return b""

    return write


def _export_prediction(payload: ExportPayload) -> PartWork:
    """Return a function that writes an export's predictions of a part to its file."""
    source = pickle.loads(payload.source)
    prediction = ExportPrediction(
        Path(payload.export), source, payload.batch_size, trust=payload.trust
    )

    def write(part: Part, count: Callable[[int], None]) -> bytes:
        batches = counted(prediction.batches(part), count)
        write_predictions(batches, Path(payload.out) / part.file_name)
        return b""

    return write


def _evaluation(
    payload: PredictorPayload, run: RunDirectory, settings: JobSettings, source: Source
) -> PartWork:
    """Return a function that returns the state of the metrics of a part."""
    model = load_model(run, settings, payload.checkpoint)
    return Evaluation(run, settings, model, source, tuple(payload.metrics)).part_state


def _open_source(payload: PredictorPayload, run: RunDirectory, settings: JobSettings) -> Source:
    if payload.source is not None:
        source: Source = pickle.loads(payload.source)
        return source
    if payload.data is None:
        return open_given(run, settings, None)
    kind = DatasetData if payload.data["kind"] == "dataset" else FileData
    return open_given(run, settings, kind.parse(payload.data))
