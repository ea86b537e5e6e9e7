"""The predictor role: predicts parts of the data, one after the other, each into a file."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from flambeau.checkpoint import RunDirectory
from flambeau.clusters.child_process import ChildSpec
from flambeau.config import DatasetData, FileData, JobSettings
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.data import Source
from flambeau.inference.parts import Part
from flambeau.inference.writing import write_predictions
from flambeau.roles.part_loop import work_on_parts
from flambeau.runs.prediction import Prediction, counted
from flambeau.runs.trained_run import open_given


class PredictorPayload(msgspec.Struct, frozen=True):
    """What predictors work with: the run, its checkpoint, the data and its parts.

    `source` is the opened data, pickled; None: open `data`. `out` is the folder of predictions.
    """

    run_dir: str
    settings: dict[str, Any]
    checkpoint: str
    data: dict[str, Any] | None
    source: bytes | None
    parts: list[Part]
    batch_size: int | None
    out: str


def predict_parts(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Predict what the coordinator assigns; the summary says how many parts that were."""
    payload = msgspec.convert(child.payload, PredictorPayload)
    parts = {part.index: part for part in payload.parts}
    settings = JobSettings.parse(payload.settings)
    run = RunDirectory(payload.run_dir)
    source = _open_source(payload, run, settings)
    size = payload.batch_size
    prediction = Prediction(run, settings, payload.checkpoint, source, size)

    def write(number: int, count: Callable[[int], None]) -> bytes:
        part = parts[number]
        batches = counted(prediction.batches(part), count)
        write_predictions(batches, Path(payload.out) / part.file_name)
        return b""

    return {"parts": work_on_parts(coordinator, write)}


def _open_source(payload: PredictorPayload, run: RunDirectory, settings: JobSettings) -> Source:
    if payload.source is not None:
        source: Source = pickle.loads(payload.source)
        return source
    if payload.data is None:
        return open_given(run, settings, None)
    kind = DatasetData if payload.data["kind"] == "dataset" else FileData
    return open_given(run, settings, kind.parse(payload.data))
