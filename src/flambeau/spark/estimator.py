"""`TorchEstimator`, a stage of a Spark ML pipeline that trains a network on a DataFrame."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from pyspark.ml import Estimator
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from flambeau.checkpoint import RunDirectory, resolve
from flambeau.checkpoint.user_code import Packer, load
from flambeau.config import CodeRef
from flambeau.driver.result import Result
from flambeau.errors import ConfigError
from flambeau.inference.export_description import described_parameters
from flambeau.runs.trained_run import read_settings
from flambeau.spark import folder as folders
from flambeau.spark import training, values
from flambeau.spark.inputs import find_inputs
from flambeau.spark.model import Summary, TorchModel
from flambeau.spark.modules import Network
from flambeau.spark.params import TrainingParams
from flambeau.spark.persistence import (
    StageReader,
    StageWriter,
    get_folder,
    new_folder,
    temporary_folder,
)
from flambeau.spark.scoring import first_rows

OBJECTS = "objects.json"


@final
class TorchEstimator(
    TrainingParams, Estimator[TorchModel], MLReadable["TorchEstimator"], MLWritable
):
    """Estimator that trains any PyTorch network on the executors of a Spark session.

    TorchEstimator(model=Net, modelParams={"hidden": 64}, loss="cross_entropy", epochs=5,
                   numWorkers=4).fit(frame)

    `explainParams()` describes all params.
    """

    def _fit(self, dataset: DataFrame) -> TorchModel:
        network = self._network()
        module = network()
        crosses = (self.getOrDefault(self.fitParams) or {}).get("crosses") or {}
        forward = described_parameters(module.forward)
        inputs = find_inputs(self, dataset.schema, forward, crosses)
        rows = first_rows(dataset, inputs.expressions(dataset.schema))
        run_dir = self._run_dir()
        result = training.train(self, dataset, inputs, network.for_training(), run_dir)
        which = "best" if self.getOrDefault(self.earlyStoppingPatience) else "latest"
        target = run_dir / "spark-model"
        run = RunDirectory(run_dir)
        folders.write_folder(target, network, module, resolve(run, which), read_settings(run))
        model = self._copyValues(TorchModel())._at(target, str(target))
        model._set(loss=values.meaning(self.getOrDefault(self.loss)))
        model._note(_summary(result))
        model._learn(rows, inputs).write(target)
        return model

    def write(self) -> StageWriter:
        """Return the writer of the estimator, fitted or not."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Return the reader of estimators."""
        return StageReader(cls)

    def _network(self) -> Network:
        model, shape = self.getOrDefault(self.model), self.getOrDefault(self.inputShape)
        if model is None:
            raise ConfigError("model is not set: give an nn.Module, a class or an import path")
        params = self.getOrDefault(self.modelParams) or {}
        return Network(model, params, None if shape is None else tuple(shape))

    def _run_dir(self) -> Path:
        given = self.getOrDefault(self.checkpointDir)
        parent = temporary_folder() if given is None else Path(given)
        return parent / f"{self.uid}-{uuid.uuid4().hex[:8]}"

    def _files(self, objects: Mapping[str, Any]) -> Path | None:
        """Write params that JSON cannot hold (networks, functions, losses) to a folder, if any."""
        if not objects:
            return None
        folder, packer = new_folder("objects"), Packer()
        refs = {name: packer.add(value, name).model_dump() for name, value in objects.items()}
        packer.write(folder)
        (folder / OBJECTS).write_text(json.dumps(refs))
        return folder

    def _leave(self, path: str) -> None:
        """Do nothing: an estimator has no files in the folder it was loaded from."""

    def _load(self, path: str, session: Any) -> None:
        folder = get_folder(f"{path}/files", session, OBJECTS)
        if folder is None:
            return
        refs = json.loads((folder / OBJECTS).read_bytes())
        self._set(**{name: load(CodeRef.parse(ref), folder) for name, ref in refs.items()})


def _summary(result: Result) -> Summary:
    return Summary(
        history=result.history,
        metrics=result.metrics,
        report=result.report,
        run_dir=str(result.run_dir),
    )
