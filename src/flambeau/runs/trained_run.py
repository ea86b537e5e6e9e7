"""A run's model after training, and data for it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from torch import nn

from flambeau.checkpoint import RunDirectory, lease, resolve
from flambeau.checkpoint.store import read_checkpoint
from flambeau.checkpoint.weights import load_all_weights
from flambeau.config import (
    ArrayData,
    CodeRef,
    DataRef,
    DatasetData,
    FileData,
    FrameData,
    JobSettings,
)
from flambeau.config.data import TEXT_FORMATS, is_frame, is_ray_dataset, is_spark_frame
from flambeau.data.arrow_columns import holds_text
from flambeau.data.data_kinds import as_files, is_arrays, is_paths, takes_an_argument
from flambeau.data.data_loaders import is_data_loader, rows_of
from flambeau.data.frames import as_table
from flambeau.data.source import Source, StreamedSource
from flambeau.data.sources.formats import find_format, is_self_describing
from flambeau.data.sources.frame_source import FrameSource, frame_source, schema_of_frame
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.torch_dataset import LoaderSource
from flambeau.embeddings.attach import has_tables
from flambeau.errors import DataError, RunDirectoryError
from flambeau.runs import open_data, open_model


def read_settings(run: RunDirectory) -> JobSettings:
    """Read the settings of a run from its job.yaml."""
    if not run.job_file.is_file():
        raise RunDirectoryError(f"{run.path} is not a run directory: it has no job.yaml")
    return JobSettings.parse(yaml.safe_load(run.job_file.read_text()), str(run.job_file))


def load_model(run: RunDirectory, settings: JobSettings, which: str) -> nn.Module:
    """Return the run's module with the weights of a checkpoint, in evaluation mode on the CPU."""
    model = open_model.build_job_model(settings, open_model.code_loader(run))
    with lease(resolve(run, which)) as path:
        load_all_weights(model, read_checkpoint(path).model)
        attach_tables(model, path)
    return model.eval()


def attach_tables(model: nn.Module, checkpoint: Path) -> None:
    """Make a model look up rows in the tables of a checkpoint, if it has tables."""
    if has_tables(model):
        from flambeau.embeddings.saved import attach_saved_tables

        attach_saved_tables(model, checkpoint)


def loss_names(settings: JobSettings) -> str | dict[str, str | None] | None:
    """Return the names of the losses, which define the meaning of outputs; None: user's own."""
    loss = settings.loss
    if isinstance(loss, dict):
        return {task: item if isinstance(item, str) else None for task, item in loss.items()}
    return loss if isinstance(loss, str) else None


def open_given(run: RunDirectory, settings: JobSettings, data: Any) -> Source:
    """Open data in any form that `fit` accepts; None is the validation data."""
    if data is None:
        return _open_validation(run, settings)
    if is_spark_frame(data) and settings.features is not None:
        raise DataError(
            "a Spark DataFrame is not read in this process: write it to files "
            "(frame.write.parquet(...)) and give their path"
        )
    if is_spark_frame(data):
        raise DataError(
            "a Spark DataFrame is not read in this process: use "
            f"flambeau.spark.TorchModel.of({str(run.path)!r}).transform(...), or give files"
        )
    if is_ray_dataset(data):
        raise DataError(
            "a Ray Dataset is not read in this process: write it to files "
            "(dataset.write_parquet(...)) and give those, or map fb.Predictor over it "
            "(dataset.map_batches(...), see the guide to Ray)"
        )
    if is_data_loader(data):
        data = rows_of(data, "data")
    if is_paths(data):
        data = as_files(data)
    if isinstance(data, FileData):
        data = _as_trained(data, settings.train)
        if settings.features is not None:
            data = open_data.as_raw_files(data, run)
    if isinstance(data, FileData | DatasetData):
        source = open_data.open_data(data, open_model.code_loader(run), settings.binding)
        require_kinds(source, settings)
        return _told(open_data.attach_features(source, run, settings, data))
    if settings.features is not None and isinstance(data, Mapping):
        data = pa.table({str(name): column for name, column in data.items()})
    if is_frame(data):
        source = frame_source(as_table(data, "the data"), "the data")
        require_kinds(source, settings)
        return open_data.attach_features(source, run, settings, data)
    if is_arrays(data):
        return open_data.array_source(data, settings.binding)
    if callable(data) and not hasattr(data, "__getitem__") and not hasattr(data, "__iter__"):
        return LoaderSource(data) if takes_an_argument(data) else open_given(run, settings, data())
    return open_source(DatasetData(code=CodeRef(value="given")), lambda _: data)


def require_kinds(source: Source, settings: JobSettings) -> None:
    """Raise `DataError` for texts where the model was trained with numbers, and vice versa.

    They would become different ids. There is no check if the training's files are gone. A pipeline
    of features checks its own input.
    """
    if settings.features is not None:
        return
    then, now = _trained_schema(settings.train), _schema(source)
    if then is None or now is None:
        return
    used = {*_names(settings.binding.inputs), *_names(settings.binding.crosses)}
    for name in used.intersection(now.names, then.names):
        if holds_text(now, name) != holds_text(then, name):
            kinds = ("texts", "numbers") if holds_text(now, name) else ("numbers", "texts")
            raise DataError(
                f"column '{name}' holds {kinds[0]}, but the model was trained with {kinds[1]}, "
                f"which gave other ids; give it as it was (texts of digits in a CSV file: "
                f"options={{'types': {{'{name}': 'string'}}}})"
            )


def _schema(source: Source) -> pa.Schema | None:
    return source.schema if isinstance(source, StreamedSource | FrameSource) else None


def _trained_schema(trained: DataRef) -> pa.Schema | None:
    """Return the training's columns with types, if these are known without running code."""
    if isinstance(trained, FrameData):
        return schema_of_frame(trained)
    if not isinstance(trained, FileData):
        return None
    try:
        return _schema(open_data.open_data(trained, _no_code))
    except DataError:
        return None


def _names(inputs: Any) -> list[str]:
    """Return all columns in a setting of inputs."""
    if isinstance(inputs, str):
        return [inputs]
    parts = inputs.values() if isinstance(inputs, dict) else inputs or ()
    return [name for part in parts for name in _names(part)]


def _no_code(ref: CodeRef) -> Any:
    raise AssertionError("files need no code")


def _as_trained(data: FileData, trained: Any) -> FileData:
    """Return files with the training's format and options, except for those given.

    A text file has the training's format whatever its name. Files of other formats get the
    training's options if they have the same suffixes or format.
    """
    if not isinstance(trained, FileData):
        return data
    then = _format_of(trained)
    if data.format is not None:
        alike = data.format == then
    elif then in TEXT_FORMATS and not is_self_describing(data.path):
        alike = True
        if {then, find_format(data.path)} == {"csv", "tsv"}:
            then = find_format(data.path)  # one format: the name determines the delimiter
    else:
        alike = _suffixes(data) == _suffixes(trained)
        then = trained.format
    if not alike:
        return data
    options = {**trained.options, **data.options}
    return data.model_copy(update={"format": then, "options": options})


def _format_of(trained: FileData) -> str | None:
    """Return the format of the training's files; None if it is unknown without the files."""
    try:
        return trained.format or find_format(trained.path)
    except DataError:
        return None


def _suffixes(data: FileData) -> list[str]:
    first = data.path if isinstance(data.path, str) else data.path[0]
    return Path(first).suffixes[-2:]


def _told(source: Source) -> Source:
    """Return the source, after a warning if bad rows of its files are left out."""
    skipped = open_data.skipped_rows(source)
    if skipped:
        warnings.warn(open_data.skipped_text(skipped), stacklevel=2)
    return source


def _open_validation(run: RunDirectory, settings: JobSettings) -> Source:
    if settings.valid is None:
        raise DataError("the job has no validation data; give the data to evaluate on")
    require_reopenable(settings)
    valid = open_data.validation_data(settings)
    source = open_data.open_data(valid, open_model.code_loader(run), settings.binding)
    return _told(open_data.attach_features(source, run, settings, valid))


def require_reopenable(settings: JobSettings) -> None:
    """Raise `DataError` for validation data that was in the memory of the job's process."""
    valid = settings.valid
    arrays = isinstance(valid, ArrayData) and any(not ref.lasts for ref in valid.columns.values())
    if arrays or isinstance(valid, FrameData):
        what = "arrays" if arrays else "a data frame"
        raise DataError(
            f"the job's validation data was {what} in memory; give the data to evaluate on"
        )
