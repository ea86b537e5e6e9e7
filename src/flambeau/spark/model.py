"""`TorchModel`, a stage of a Spark ML pipeline that applies a trained network."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, final

import pyarrow as pa
from pyspark.ml import Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from torch import nn

from flambeau.checkpoint import RunDirectory, parse_reference, resolve
from flambeau.checkpoint.durable import write_atomically
from flambeau.data.sources.urls import local_path
from flambeau.errors import DataError
from flambeau.runs import open_model
from flambeau.runs.trained_run import loss_names, read_settings
from flambeau.spark import folder as folders
from flambeau.spark import values
from flambeau.spark.folder import MODEL, SUMMARY, Described
from flambeau.spark.inputs import Inputs, find_inputs
from flambeau.spark.modules import Network
from flambeau.spark.outputs import PREDICTION, PROBABILITY, Output
from flambeau.spark.params import TrainingParams
from flambeau.spark.persistence import StageReader, StageWriter, get_folder, new_folder
from flambeau.spark.scoring import (
    SCORED,
    Meeting,
    Scoring,
    first_rows,
    kinds_of,
    score_rows,
    with_scores,
)
from flambeau.spark.shipping import ship


@dataclass(frozen=True)
class Summary:
    """Results of a training: `history` has an entry per evaluation, `metrics` has the last one."""

    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    run_dir: str | None = None


@final
class TorchModel(TrainingParams, Model, MLReadable["TorchModel"], MLWritable):
    """A trained network. `transform` adds its predictions to a DataFrame.

    It is returned by `TorchEstimator.fit`, `TorchModel.load` and `TorchModel.of`. It has the params
    of the estimator that trained it; a loaded one has those that are texts and numbers.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._folder: Path | None = None
        self._place = ""
        self._module: nn.Module | None = None
        self._known: Described | None = None

    @classmethod
    def of(cls, model: Any, **params: Any) -> Self:
        """Make a stage of a pretrained nn.Module, or of a run of Flambeau (`"runs/a@best"`).

        `loss=` defines the meaning of its outputs: `"cross_entropy"` for the logits of classes,
        `"bce"` for one logit, none for values.
        """
        stage = cls(**params)
        target, shape = new_folder("given"), stage._shape()
        if isinstance(model, nn.Module):
            network = Network(model, {}, shape)
            folders.write_folder(target, network, network())
        else:
            path, which = parse_reference(str(model))
            run = RunDirectory(path)
            settings = read_settings(run)
            module = open_model.build_model(settings.model, open_model.code_loader(run))
            network = Network(module, {}, shape)
            folders.write_folder(target, network, module, resolve(run, which), settings)
            inputs = settings.binding.model_dump(mode="json")["inputs"]
            stage._set(
                **{"loss": loss_names(settings), "inputCols": inputs, **params},
            )
        return stage._at(target, str(target))

    def torch(self) -> nn.Module:
        """Return the network with its weights, in evaluation mode; its tables are memory-mapped.

        All calls return the same module.
        """
        if self._module is None:
            self._module = folders.load_module(self._files({}))
        return self._module

    @property
    def hasSummary(self) -> bool:  # noqa: N802 - as Spark calls it
        """Return whether there is a summary of the training."""
        return (self._files({}) / SUMMARY).is_file()

    @property
    def summary(self) -> Summary:
        """Summary of the training; raises `RuntimeError` if there is none."""
        if not self.hasSummary:
            raise RuntimeError("this model was not trained by a TorchEstimator: it has no summary")
        return Summary(**json.loads((self._files({}) / SUMMARY).read_bytes()))

    def write(self) -> StageWriter:
        """Return the writer of the model: `model.write().overwrite().save(path)`."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Return the reader of models."""
        return StageReader(cls)

    @property
    def modelFolder(self) -> str:  # noqa: N802 - beside Spark's names
        """Folder of the model's files on this machine."""
        return str(self._files({}))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        described = self._described()
        inputs = find_inputs(self, dataset.schema, described.parameters, described.binding.crosses)
        if described.outputs is None:
            rows = first_rows(dataset, inputs.expressions(dataset.schema))
            described = self._learn(rows, inputs)
        assert described.outputs is not None
        names = {each: self._name(each) for each in described.outputs}
        taken = [name for name in names.values() if name in dataset.columns]
        if taken:
            raise DataError(
                f"the DataFrame has a column '{taken[0]}' already; drop it, or set another "
                "predictionCol, probabilityCol or rawPredictionCol"
            )
        shipped = ship(self._files({}), self._place, dataset.sparkSession)
        scoring = Scoring(shipped, self._meeting(described, inputs), described.outputs)
        scored = with_scores(dataset, inputs.expressions(dataset.schema), scoring)
        added = [_column(each).alias(name) for each, name in names.items() if name is not None]
        return scored.select(*[F.col(f"`{name}`") for name in dataset.columns], *added)

    def _learn(self, rows: pa.StructArray, inputs: Inputs) -> Described:
        """Find the outputs of the model from a few rows, and store them in its description."""
        described = self._described()
        known = described.model_copy(update={"columns": kinds_of(rows)})
        outputs = tuple(score_rows(self.torch(), self._meeting(known, inputs), rows))
        self._known = known.model_copy(update={"outputs": outputs})
        return self._known

    def _described(self) -> Described:
        if self._known is None:
            self._known = folders.read_described(self._files({}))
        return self._known

    def _meeting(self, described: Described, inputs: Inputs) -> Meeting:
        loss = values.meaning(self.getOrDefault(self.loss))
        binding = described.binding.model_dump(mode="json") | {"inputs": inputs.binding}
        return Meeting(binding, described.columns, loss)

    def _name(self, output: Output) -> str | None:
        """Return the name of a column in the result; None if the user does not want it."""
        params = {PREDICTION: self.predictionCol, PROBABILITY: self.probabilityCol}
        name = self.getOrDefault(params.get(output.role, self.rawPredictionCol))
        return name if name is None or output.task is None else f"{output.task}_{name}"

    def _shape(self) -> tuple[int, ...] | None:
        shape = self.getOrDefault(self.inputShape)
        return None if shape is None else tuple(shape)

    def _at(self, folder: Path, place: str) -> Self:
        """Use the files in `folder`, which other machines find at `place`; return the model."""
        self._folder, self._place, self._module, self._known = folder, place, None, None
        return self

    def _note(self, summary: Summary) -> None:
        write_atomically(self._files({}) / SUMMARY, json.dumps(asdict(summary)).encode())

    def _files(self, objects: Mapping[str, Any]) -> Path:
        """Return the folder with the model's files; `objects`, not in JSON, are not needed."""
        if self._folder is None:
            raise DataError("this TorchModel is empty: use TorchEstimator.fit, or TorchModel.of")
        return self._folder

    def _leave(self, path: str) -> None:
        """Copy the files elsewhere if they are in a place that is about to be overwritten."""
        folder, target = self._files({}), Path(local_path(path)).resolve()
        if target in folder.resolve().parents:
            import shutil

            kept = new_folder("kept")
            shutil.copytree(folder, kept)
            self._at(kept, str(kept))

    def _load(self, path: str, session: Any) -> None:
        place = f"{path}/files"
        folder = get_folder(place, session, MODEL)
        if folder is None:
            raise DataError(f"{place} does not exist, or this machine cannot read it")
        folders.tell_of_code_by_value(folder, path)
        self._at(folder, place)


def _column(output: Output) -> Column:
    column = F.col(SCORED)[output.key]
    is_vector = output.role != PREDICTION
    return array_to_vector(column) if is_vector else column
