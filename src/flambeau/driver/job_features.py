"""The features of a job: its fitted pipeline, and its data as tables."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.run_directory import FITTING
from flambeau.config import Binding, Cluster, CodeRef, FileData, Local, Observe
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.data.prepared_files import prepared_folder
from flambeau.data.sources.text.criteo import log_schema
from flambeau.driver.fit_features import fit_files
from flambeau.errors import ConfigError, DataError
from flambeau.features.criteo import criteo
from flambeau.features.features_file import is_features_file, load_features_file
from flambeau.features.fitting import MEMORY
from flambeau.features.pipeline import Pipeline
from flambeau.features.preparing.prepared import IDENTITY, PIPELINE, identity_of
from flambeau.features.raw_data import open_rows, raw_files
from flambeau.runs.open_data import FEATURES

#: A file beside the pipeline of a run; it identifies the data that the pipeline was fitted on.
FITTED_ON = "features-of.json"


def fitted(
    features: Any, train: Any, run: Path, cluster: Cluster | None = None, observe: Any = None
) -> Pipeline | None:
    """Return the pipeline for `features=` of a job, or the one that prepared its files.

    If the pipeline is not fitted and the data are files, processes of the `cluster` fit it in a
    folder of the run, where an interrupted fit is resumed.
    """
    folder = prepared_folder(train)
    if features is None:
        return None if folder is None else Pipeline.load(folder / PIPELINE)
    if isinstance(features, str | Path):
        features = _opened(Path(features))
    if not isinstance(features, Pipeline):
        raise ConfigError(
            f"features= is a {type(features).__name__}; give an ft.Pipeline, a file "
            "such as features.yaml, or the folder of a pipeline"
        )
    for operation in features.operations:
        if operation.out_of_fold and folder is None:
            raise ConfigError(
                f"{operation}: a training row must not see its own label, which only prepared "
                "files can promise: train on what pipeline.fit_transform(...) returns"
            )
    if not features.is_fitted and (is_paths(train) or isinstance(train, FileData)):
        return _fit_files(features, train, run, cluster or Local(), Observe.parse(observe or {}))
    return features if features.is_fitted else features.fit(train, observe=observe)


def _fit_files(
    pipeline: Pipeline, train: Any, run: Path, cluster: Cluster, observe: Observe
) -> Pipeline:
    """Fit a pipeline, or load the run's statistics if it was fitted on the same data before."""
    source = open_rows(train, pipeline.format)
    code = RunDirectory(run).code
    identity = json.dumps(identity_of(source, pipeline.operations, None)).encode()
    mark = code / FITTED_ON
    if mark.exists() and mark.read_bytes() == identity and (code / FEATURES).is_dir():
        states = Pipeline.load(code / FEATURES, trust=True).states_
    else:
        operations, folder = pipeline.operations, run / FITTING
        states = fit_files(source, operations, folder, cluster, MEMORY, observe)
    pipeline.states_, pipeline.schema_ = states, source.schema
    return pipeline


def _opened(place: Path) -> Pipeline:
    """Return the pipeline of a features file, a prepared folder or a saved pipeline's folder."""
    if is_features_file(place):
        return load_features_file(place).pipeline
    return Pipeline.load(place / PIPELINE if (place / PIPELINE).is_dir() else place)


def of_logs(train: Any, job: Path) -> Pipeline | None:
    """Return the pipeline equivalent to what the reader of Criteo's logs does.

    With it in the run, the model accepts raw rows wherever it is used. `job` is the job file of the
    run: a run that started without this pipeline continues without it.
    """
    options = train.options if isinstance(train, FileData) and train.format == "criteo" else None
    if options is None or "raw" in options or options.get("dense", "log") != "log":
        return None
    if job.is_file() and yaml.safe_load(job.read_text()).get("features") is None:
        return None
    sizes = {name: options[name] for name in ("dense_columns", "id_columns") if name in options}
    pipeline = criteo(vocabulary=False, **sizes)
    if len(pipeline.operations) < 2:
        return None
    pipeline.schema_ = log_schema(raw=True, labels=options.get("labels"), **sizes)
    pipeline.states_ = ({},) * len(pipeline.operations)
    return pipeline


def as_named(data: Any, pipeline: Pipeline) -> Any:
    """Return data with raw columns by name; in-memory data as a table."""
    if data is not None and (is_paths(data) or isinstance(data, FileData)):
        files = data if isinstance(data, FileData) else as_files(data)
        return data if prepared_folder(files) is not None else raw_files(files, pipeline.format)
    if isinstance(data, tuple | list) and not all(isinstance(each, str | Path) for each in data):
        raise DataError("features= are made of columns by name: give a dict of columns, or a frame")
    if not isinstance(data, Mapping):
        return data
    source = open_rows(data)
    batches = (
        batch for shard in source.shards() for batch in source.read(shard, source.schema.names)
    )
    return pa.Table.from_batches(batches, source.schema)


def with_sizes(model: CodeRef, binding: Binding, pipeline: Pipeline | None) -> CodeRef:
    """Return a job file's model with `sizes: features` replaced by the sizes of its id columns."""
    if pipeline is None:
        raise ConfigError(
            "args.sizes: features means the sizes that the job's pipeline has, and it has none: "
            "give features=, train on a prepared folder, or write the sizes as a list"
        )
    columns = binding.inputs.get("ids") if isinstance(binding.inputs, dict) else None
    if columns is None:
        raise ConfigError("args.sizes: features needs inputs: {ids: [...]}, the columns of the ids")
    names, known = (columns,) if isinstance(columns, str) else columns, pipeline.sizes_
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"args.sizes: features: the pipeline does not number the values of {unknown[0]!r}; it "
            f"knows the sizes of {', '.join(known) or 'no column'}: use Categorify or "
            "Bucketize, or write the sizes as a list"
        )
    sizes = {name: known[name] for name in names}
    return model.model_copy(update={"args": {**model.args, "sizes": sizes}})


def write(pipeline: Pipeline, code: Path) -> None:
    """Write a pipeline into a run's code folder; it reads its statistics from there afterwards."""
    folder = code / FEATURES
    if not folder.is_dir() or Pipeline.load(folder, trust=True).digest != pipeline.digest:
        pipeline.save(folder)
    fitting = code.parent / FITTING
    if (fitting / IDENTITY).exists():
        pipeline.states_ = Pipeline.load(folder, trust=True).states_
        os.replace(fitting / IDENTITY, code / FITTED_ON)
        shutil.rmtree(fitting)
