"""Predictions of a run's model: as a table, as a file, or by several processes into a folder."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from flambeau.checkpoint import RunDirectory, lease, resolve
from flambeau.checkpoint.manifest import MANIFEST as CHECKPOINT_MANIFEST
from flambeau.clusters.cores import core_quota
from flambeau.config import DatasetData, FileData, JobSettings
from flambeau.data import Source, StreamedSource
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.driver.predicting_processes import predict_in_processes
from flambeau.errors import ConfigError
from flambeau.inference.parts import PART_ROWS, Part
from flambeau.inference.predictions_folder import PredictionsFolder
from flambeau.inference.writing import is_folder, write_predictions
from flambeau.kernels.cores import usable_cores
from flambeau.runs.prediction import Prediction, PredictionOptions
from flambeau.runs.trained_run import open_given

#: Called with the number of rows predicted since the last call.
OnRows = Callable[[int], None]


def predict_run(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    out: str | Path | None,
    options: PredictionOptions | None = None,
    on_rows: OnRows = lambda _: None,
) -> Any:
    """An Arrow table of predictions, or with `out` the number of rows written there."""
    checkpoint, options = resolve(run, which), options or PredictionOptions()
    folder = None if out is None or not is_folder(Path(out)) else Path(out)
    if folder is None and (options.workers or 1) > 1:
        raise ConfigError("several workers write a folder of files: give out= a folder")
    source = open_given(run, settings, data)
    if folder is not None:
        job = FolderPrediction(run, settings, checkpoint, data, source, options)
        return job.into(folder, on_rows)
    prediction = Prediction(run, settings, checkpoint.name, source, options.batch_size)
    parts = options.parts(source)
    batches = (_counted(batch, on_rows) for part in parts for batch in prediction.batches(part))
    return pa.Table.from_batches(batches) if out is None else write_predictions(batches, Path(out))


@final
@dataclass(frozen=True)
class FolderPrediction:
    """Predictions that go into a folder, part by part, and go on there after a crash."""

    run: RunDirectory
    settings: JobSettings
    checkpoint: Path
    data: Any
    source: Source
    options: PredictionOptions

    def into(self, path: Path, on_rows: OnRows) -> int:
        """Write what is missing; how many rows there are in the end."""
        parts = self.options.parts(self.source)
        folder = PredictionsFolder(path, self._identity(parts))
        missing = folder.begin(parts)
        on_rows(folder.rows_done([part for part in parts if part not in missing]))
        workers = self._workers(len(missing))
        with lease(self.checkpoint):
            if workers > 1:
                predict_in_processes(self._payload(path), missing, workers, on_rows)
            elif missing:
                self.here(path, missing, on_rows)
        return folder.complete(parts)

    def here(self, path: Path, parts: Sequence[Part], on_rows: OnRows) -> None:
        """Predict some parts in this process."""
        size = self.options.batch_size
        prediction = Prediction(self.run, self.settings, self.checkpoint.name, self.source, size)
        for part in parts:
            batches = (_counted(batch, on_rows) for batch in prediction.batches(part))
            write_predictions(batches, path / part.file_name)

    def _workers(self, parts: int) -> int:
        asked = self.options.workers
        if not self._travels():
            if (asked or 1) > 1:
                raise ConfigError(
                    f"workers={asked}: data of this process's memory is predicted here; give files "
                    "or module:function, or leave workers out"
                )
            return 1
        return min(parts, asked or min(len(usable_cores()), core_quota() or len(usable_cores())))

    def _travels(self) -> bool:
        """Whether another process can open the data."""
        return is_paths(self.data) or isinstance(self.data, FileData | DatasetData)

    def _payload(self, path: Path) -> dict[str, Any]:
        # Streamed sources know their shards, which may have taken a pass over the files.
        source = self.source if isinstance(self.source, StreamedSource) else None
        return {
            "run": str(self.run.path),
            "checkpoint": self.checkpoint.name,
            "data": self.data,
            "source": source,
            "options": self.options,
            "out": str(path),
        }

    def _identity(self, parts: Sequence[Part]) -> dict[str, Any]:
        """What the predictions are of, in plain values."""
        checkpoint = (self.checkpoint / CHECKPOINT_MANIFEST).read_bytes()
        return {
            "run": self.run.path.name,
            "checkpoint": f"{self.checkpoint.name}-{hashlib.sha256(checkpoint).hexdigest()[:16]}",
            "data": _shown(self.data),
            "part_rows": self.options.part_rows or PART_ROWS,
            "data_digest": _digest(self.source, parts),
            "keys": list(self.settings.binding.keys),
        }


def _counted(batch: pa.RecordBatch, on_rows: OnRows) -> pa.RecordBatch:
    on_rows(batch.num_rows)
    return batch


def _shown(data: Any) -> str:
    if isinstance(data, FileData):
        return json.dumps(data.path)
    if isinstance(data, DatasetData):
        return data.code.name
    if isinstance(data, str | Path):
        return str(data)
    return json.dumps(as_files(data).path) if is_paths(data) else type(data).__name__


def _digest(source: Source, parts: Sequence[Part]) -> str:
    """Tells data from other data: by files, their sizes, and numbers of rows."""
    told: list[Any] = [[part.first, part.last, part.rows] for part in parts]
    if isinstance(source, StreamedSource):
        told += [[shard.path, shard.part, shard.rows] for shard in source.shards()]
        told += [_size(path) for path in sorted({shard.path for shard in source.shards()})]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _size(path: str) -> int | None:
    """The size of a local file; None for what is elsewhere."""
    return os.path.getsize(path) if os.path.exists(path) else None
