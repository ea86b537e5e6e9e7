"""Predictions of a run's model: as a table, in a file, or by several processes in a folder."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from flambeau.checkpoint import RunDirectory, lease, resolve
from flambeau.checkpoint.manifest import MANIFEST as CHECKPOINT_MANIFEST
from flambeau.config import Cluster, DatasetData, FileData, JobSettings, Local
from flambeau.coordination.payloads import Part
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.data.source import Source, StreamedSource
from flambeau.driver.elsewhere import is_elsewhere
from flambeau.driver.parts.part_coordinator import OnRows
from flambeau.driver.parts.part_job import PartJob
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import cluster_of
from flambeau.errors import ConfigError
from flambeau.inference.parts import PART_ROWS
from flambeau.inference.predictions_folder import PredictionsFolder
from flambeau.inference.writing import is_folder, write_predictions
from flambeau.runs.prediction import Prediction, PredictionOptions, counted
from flambeau.runs.trained_run import open_given


def predict_run(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    out: str | Path | None,
    options: PredictionOptions | None = None,
    on_rows: OnRows = lambda _: None,
    cluster: Cluster | None = None,
) -> Any:
    """Return an Arrow table of predictions, or with `out` the number of rows written there.

    Processes of this machine, or of `cluster`, write the files of a folder.
    """
    where, options = cluster_of(cluster), options or PredictionOptions()
    folder = None if out is None or not is_folder(Path(out)) else Path(out)
    if folder and cluster is not None and isinstance(where, Local):
        options = replace(options, workers=options.workers or where.workers)
    given = {"run": run.path, "checkpoint": which, "out": out, "options": vars(options)}
    folders = [run.path]
    if is_elsewhere(where):
        on_rows = _uncounted
        if folder is not None:
            folders.append(folder)
        elif out is not None:
            raise ConfigError(f"out={str(out)!r}: a client of Ray writes a folder of files")
    predict = partial(_predict, run, settings, which, data, folder or out, options, on_rows)
    return together(where, "predict", comparable({**given, "cluster": where}), predict, folders)


def _uncounted(rows: int) -> None:
    """Ignore rows, which another process counts."""


def _predict(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    out: str | Path | None,
    options: PredictionOptions,
    on_rows: OnRows,
    cluster: Cluster,
) -> Any:
    checkpoint = resolve(run, which)
    folder = None if out is None or not is_folder(Path(out)) else Path(out)
    if folder is None and (options.workers or 1) > 1:
        raise ConfigError("several workers write a folder of files: give out= a folder")
    source = open_given(run, settings, data)
    if folder is not None:
        job = PartJob(run, settings, checkpoint, data, source, cluster)
        return FolderPrediction(job, options).into(folder, on_rows)
    prediction = Prediction(run, settings, checkpoint.name, source, options.batch_size)
    parts = options.parts(source)
    batches = (batch for part in parts for batch in counted(prediction.batches(part), on_rows))
    return pa.Table.from_batches(batches) if out is None else write_predictions(batches, Path(out))


@final
@dataclass(frozen=True)
class FolderPrediction:
    """Predictions that are written to a folder, part by part, and can be resumed after a crash."""

    job: PartJob
    options: PredictionOptions

    def into(self, path: Path, on_rows: OnRows) -> int:
        """Write the missing parts; return the number of rows in the complete folder."""
        parts = self.options.parts(self.job.source)
        folder = PredictionsFolder(path, self._identity(parts))
        missing = folder.begin(parts)
        on_rows(folder.rows_done([part for part in parts if part not in missing]))
        workers = self.job.workers(self.options.workers, len(missing), "predicted")
        try:
            if workers > 1 or (missing and self.job.spreads):
                self.job.work(
                    missing,
                    workers,
                    on_rows,
                    resumes=True,
                    batch_size=self.options.batch_size,
                    out=str(path.resolve()),
                )
            elif missing:
                self._here(path, missing, on_rows)
        finally:
            folder.remove_partial()
        return folder.complete(parts)

    def _here(self, path: Path, parts: Sequence[Part], on_rows: OnRows) -> None:
        """Predict some parts in this process."""
        job, size = self.job, self.options.batch_size
        with lease(job.checkpoint):
            prediction = Prediction(job.run, job.settings, job.checkpoint.name, job.source, size)
            for part in parts:
                write_predictions(counted(prediction.batches(part), on_rows), path / part.file_name)

    def _identity(self, parts: Sequence[Part]) -> dict[str, Any]:
        """Return plain values that identify what is predicted: checkpoint, data and parts."""
        job = self.job
        checkpoint = (job.checkpoint / CHECKPOINT_MANIFEST).read_bytes()
        return {
            "run": job.run.path.name,
            "checkpoint": f"{job.checkpoint.name}-{hashlib.sha256(checkpoint).hexdigest()[:16]}",
            "data": shown_data(job.data),
            "part_rows": self.options.part_rows or PART_ROWS,
            "data_digest": digest_of(job.source, parts),
            "keys": list(job.settings.binding.keys),
        }


def shown_data(data: Any) -> str:
    """Return the name of data in a folder of predictions."""
    if isinstance(data, FileData):
        return json.dumps(data.path)
    if isinstance(data, DatasetData):
        return data.code.name
    if isinstance(data, str | Path):
        return str(data)
    return json.dumps(as_files(data).path) if is_paths(data) else type(data).__name__


def digest_of(source: Source, parts: Sequence[Part]) -> str:
    """Return a digest of data: of its files, their sizes, and numbers of rows."""
    known: list[Any] = [[part.first, part.last, part.rows] for part in parts]
    if isinstance(source, StreamedSource):
        known += [[shard.path, shard.part, shard.rows] for shard in source.shards()]
        known += [_size(path) for path in sorted({shard.path for shard in source.shards()})]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _size(path: str) -> int | None:
    """Return the size of a local file in bytes; None for other paths."""
    return os.path.getsize(path) if os.path.exists(path) else None
