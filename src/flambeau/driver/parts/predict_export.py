"""Predictions of an export on files, by any number of processes."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import cloudpickle

from flambeau.clusters.control_groups import count_cores
from flambeau.config import Cluster, Local
from flambeau.coordination.payloads import ExportPayload
from flambeau.coordination.roles import Role
from flambeau.data.source import StreamedSource
from flambeau.driver.elsewhere import is_elsewhere
from flambeau.driver.parts.part_coordinator import OnRows, PartCoordinator
from flambeau.driver.parts.predict import digest_of, shown_data
from flambeau.driver.parts.run_parts import run_parts
from flambeau.driver.spmd import comparable, together
from flambeau.driver.topology import Topology, cluster_of
from flambeau.errors import ConfigError
from flambeau.inference.parts import PART_ROWS
from flambeau.inference.predictions_folder import PredictionsFolder
from flambeau.inference.writing import is_folder, write_predictions
from flambeau.runs.export_data import open_data_for
from flambeau.runs.export_prediction import ExportPrediction
from flambeau.runs.prediction import PredictionOptions, counted


def predict_export(
    place: str | Path,
    data: Any,
    out: str | Path,
    options: PredictionOptions | None = None,
    on_rows: OnRows = lambda _: None,
    cluster: Cluster | None = None,
    *,
    trust: bool = False,
) -> int:
    """Write predictions of an export to a file or a folder; return the number of rows there.

    Processes of this machine, or of a `cluster` whose machines all see the folder and the export,
    write the files of a folder.
    """
    where, options = cluster_of(cluster), options or PredictionOptions()
    if is_elsewhere(where):
        raise ConfigError("an export is used where its files are: predict with the run instead")
    given = {"export": str(place), "out": str(out), "options": vars(options), "cluster": where}
    job = _Job(Path(place), data, Path(out), options, trust)
    work = partial(job.do, on_rows)
    found: int = together(where, "predict", comparable(given), work, [Path(out)])
    return found


@final
@dataclass(frozen=True)
class _Job:
    """An export, the data, and the place of its predictions."""

    place: Path
    data: Any
    out: Path
    options: PredictionOptions
    trust: bool

    def do(self, on_rows: OnRows, cluster: Cluster) -> int:
        """Predict the missing parts; return the number of rows in the complete output."""
        source, identity = open_data_for(self.place, self.data)
        parts = self.options.parts(source)
        if not is_folder(self.out):
            prediction = self._prediction(source)
            batches = (each for part in parts for each in prediction.batches(part))
            return write_predictions(counted(batches, on_rows), self.out)
        folder = PredictionsFolder(
            self.out,
            {
                "export": identity,
                "data": shown_data(self.data),
                "part_rows": self.options.part_rows or PART_ROWS,
                "data_digest": digest_of(source, parts),
            },
        )
        missing = folder.begin(parts)
        on_rows(folder.rows_done([part for part in parts if part not in missing]))
        workers = self._workers(cluster, len(missing))
        try:
            if workers > 1 or (missing and not isinstance(cluster, Local)):
                self._spread(source, missing, workers, on_rows, cluster)
            elif missing:
                prediction = self._prediction(source)
                for part in missing:
                    target = self.out / part.file_name
                    write_predictions(counted(prediction.batches(part), on_rows), target)
        finally:
            folder.remove_partial()
        return folder.complete(parts)

    def _prediction(self, source: StreamedSource) -> ExportPrediction:
        return ExportPrediction(self.place, source, self.options.batch_size, trust=self.trust)

    def _workers(self, cluster: Cluster, parts: int) -> int:
        if not isinstance(cluster, Local):
            return self.options.workers or cluster.workers
        return min(parts, self.options.workers or count_cores())

    def _spread(
        self,
        source: StreamedSource,
        parts: Any,
        workers: int,
        on_rows: OnRows,
        cluster: Cluster,
    ) -> None:
        """Run predictors on parts."""
        numbers = [part.index for part in parts]
        coordinator = PartCoordinator(numbers, on_rows, lambda part, result: None)
        payload = ExportPayload(
            export=str(self.place.resolve()),
            source=cloudpickle.dumps(source),
            parts=list(parts),
            out=str(self.out.resolve()),
            batch_size=self.options.batch_size,
            trust=self.trust,
        )
        run_parts(
            Topology(workers, Role.PREDICTOR, coordinator=coordinator),
            Local(workers) if isinstance(cluster, Local) else cluster,
            payload,
            resumes=True,
        )
