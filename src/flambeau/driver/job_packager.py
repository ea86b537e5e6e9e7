"""Turning the arguments of `fit` into settings that can be sent to other processes."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.user_code import Packer
from flambeau.config import (
    ArrayData,
    Binding,
    Cluster,
    CodeRef,
    DataRef,
    DatasetData,
    FileData,
    FrameData,
    JobSettings,
    LoaderData,
    Local,
    OptimizerSpec,
    RemoteCluster,
    SpooledData,
)
from flambeau.config.data import is_frame, is_ray_dataset, is_spark_frame
from flambeau.config.settings import Settings, nearest
from flambeau.data.data_kinds import as_files, is_arrays, is_paths, takes_an_argument
from flambeau.data.data_loaders import is_data_loader, rows_of
from flambeau.data.prepared_files import prepared_folder
from flambeau.data.sources.shared_files import RunFiles, SharedFiles, UnnamedFiles
from flambeau.errors import ConfigError, DataError


@dataclass
class JobPackager:
    """A collector of the user's code and arrays that turns arguments into settings.

    Workers of the `cluster` can open the shared arrays until the `with` block ends.
    """

    directory: Path
    cluster: Cluster = field(default_factory=Local)
    packer: Packer = field(default_factory=Packer)
    #: Data frames of the cluster's engine, by name.
    frames: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shared = RunDirectory(self.directory).shared
        self._job = RunDirectory(self.directory).job_file
        self._files = _shared_files(self.cluster, self.directory, self._shared)
        self._features: Any = None

    def __enter__(self) -> Self:
        """Remove what a killed process left; only the holder of the run's lock may do this."""
        if self._shared.exists():
            shutil.rmtree(self._shared)
        return self

    def __exit__(self, *error: object) -> None:
        """Release the shared arrays."""
        self._files.close()

    @property
    def fds(self) -> tuple[int, ...]:
        """The file descriptors that processes of this machine inherit."""
        files = self._files
        return tuple(files.descriptors) if isinstance(files, UnnamedFiles) else ()

    def add_features(
        self, features: Any, train: Any, valid: Any, observe: Any = None
    ) -> dict[str, Any]:
        """Return the digest of a job's features, and its data with columns by name.

        Prepared files use the pipeline that prepared them. Criteo's logs use one that is equivalent
        to their reader.
        """
        given = {"features": None, "train": train, "valid": valid}
        logs = isinstance(train, FileData) and train.format == "criteo"
        if features is None and not logs and prepared_folder(train) is None:
            return given
        from flambeau.driver import job_features

        if features is None and logs:
            self._features = job_features.of_logs(train, self._job)
        else:
            place = self.directory
            self._features = job_features.fitted(features, train, place, self.cluster, observe)
        if self._features is None:
            return given
        tables = {
            name: job_features.as_named(given[name], self._features) for name in ("train", "valid")
        }
        return {"features": self._features.digest, **tables}

    def with_sizes(self, settings: JobSettings) -> JobSettings:
        """Return settings whose model has the sizes of the features, if it needs them."""
        if settings.model.args.get("sizes") != "features":
            return settings
        from flambeau.driver import job_features

        model = job_features.with_sizes(settings.model, settings.binding, self._features)
        return settings.model_copy(update={"model": model})

    def write_features(self, code: Path) -> None:
        """Write the pipeline of the job's features beside the user's code."""
        if self._features is not None:
            from flambeau.driver import job_features

            job_features.write(self._features, code)

    def model(self, model: Any) -> CodeRef:
        """Return a reference to a module, or to a class or function that builds one."""
        if isinstance(model, CodeRef):
            return model
        if not callable(model):
            raise ConfigError(
                f"model= is a {type(model).__name__}; give an nn.Module, or a class or function "
                "that builds one"
            )
        return self.packer.add(model, "model")

    def loss(self, loss: Any, model: Any, step: Any) -> Any:
        """Return the loss; without one, and without a step, the model's `default_loss`."""
        if loss is None and step is None:
            loss = getattr(model, "default_loss", None)
        return self.code(loss, "loss")

    def code(self, value: Any, name: str) -> Any:
        """Return functions as references, and names and settings unchanged."""
        if value is None or isinstance(value, str | CodeRef | Settings):
            return value
        if isinstance(value, Mapping):
            return {key: self.code(item, f"{name}-{key}") for key, item in value.items()}
        return self.packer.add(value, name)

    def optimizer(self, value: Any, name: str = "optimizer") -> Any:
        """Return an optimizer's settings (from a name, spec or function), perhaps by submodule."""
        if isinstance(value, str):
            return OptimizerSpec(name=value)
        if hasattr(value, "param_groups"):
            kind = type(value).__name__
            raise ConfigError(
                f"optimizer= is a {kind} that holds this process's parameters; the workers have "
                f"their own: give fb.optim(torch.optim.{kind}, lr=...) or f(parameters)"
            )
        if isinstance(value, type):
            raise ConfigError(
                f"optimizer={value.__name__} needs arguments: fb.optim({value.__name__}, lr=...)"
            )
        if isinstance(value, Mapping):
            return {key: self.optimizer(item, f"{name}-{key}") for key, item in value.items()}
        return self.code(value, name)

    def schedule(self, value: Any) -> Any:
        """Return a schedule's settings: from its name, settings or a function of the optimizer."""
        if isinstance(value, str):
            return {"kind": value}
        return value if isinstance(value, Mapping) else self.code(value, "schedule")

    def callbacks(self, callbacks: Sequence[Any]) -> tuple[CodeRef, ...]:
        """Return references to callbacks (instances or classes), in order."""
        return tuple(
            self.packer.add(callback, f"callback-{index}")
            for index, callback in enumerate(callbacks)
        )

    def data(self, data: Any, name: str, binding: Binding | None = None) -> DataRef | None:
        """Return settings of files, arrays, a Dataset or a function; `binding` may allow NaN.

        The label columns of Spark and Ray data are checked here: later these frames are merged, and
        a missing column is filled with nulls.
        """
        binding = binding or Binding()
        if data is None or isinstance(
            data, FileData | ArrayData | DatasetData | LoaderData | FrameData
        ):
            return data
        if is_data_loader(data):
            data = rows_of(data, name)
        if type(data).__name__ == "LazyFrame":
            raise ConfigError(
                f"{name}= is a LazyFrame, which has no rows yet: give what its .collect() returns"
            )
        if is_paths(data):
            return as_files(data)
        if is_spark_frame(data):
            return self._engine_frame(data, name, binding, "spark", tuple(data.columns))
        if is_ray_dataset(data):
            data, columns = _with_columns(data, name)
            return self._engine_frame(data, name, binding, "ray", columns)
        if is_frame(data):
            return self._frame(data, name)
        if is_arrays(data):
            return self._arrays(data, binding)
        if hasattr(data, "__getitem__") or hasattr(data, "__iter__"):
            return DatasetData(code=self.packer.add(data, name))
        if callable(data):
            return self._function(data, name)
        raise ConfigError(
            f"{name}= is a {type(data).__name__}; give (x, y) arrays, a dict of columns, a data "
            "frame, a path, a Dataset, or a function"
        )

    def _engine_frame(
        self,
        data: Any,
        name: str,
        binding: Binding,
        engine: Literal["spark", "ray"],
        columns: tuple[str, ...],
    ) -> SpooledData:
        for column in binding.labels if self._features is None else ():
            if column not in columns:
                hint = nearest(column, columns)
                raise DataError(f"{name}= has no column '{column}', which is a label; {hint}")
        self.frames[name] = data
        return SpooledData(name=name, columns=columns, engine=engine)

    def _frame(self, data: Any, name: str) -> FrameData:
        from flambeau.data.frames import as_table
        from flambeau.data.sources.frame_source import share_frame

        return share_frame(as_table(data, f"{name}="), self._files, f"{name}=")

    def _arrays(self, data: Any, binding: Binding) -> ArrayData:
        from flambeau.data.sources.shared_arrays import array_columns, write_arrays

        columns, inputs, labels = array_columns(data)
        refs = write_arrays(columns, self._files, binding.nullable(columns, labels))
        return ArrayData(columns=refs, inputs=inputs, labels=labels)

    def _function(self, function: Callable[..., Any], name: str) -> DataRef:
        ref = self.packer.add(function, name)
        if takes_an_argument(function):
            return LoaderData(code=ref)
        return DatasetData(code=ref.model_copy(update={"call": True}))


def _with_columns(dataset: Any, name: str) -> tuple[Any, tuple[str, ...]]:
    """Return a Ray Dataset and its columns; it is executed only if they are not known yet."""
    columns = dataset.columns(fetch_if_missing=False)
    if columns is None:
        from flambeau.clusters.ray.blocks import in_order

        with in_order(dataset):
            dataset = dataset.materialize()
        columns = dataset.columns()
    if columns is None:
        raise DataError(f"{name}=: the Ray Dataset has no rows")
    return dataset, tuple(columns)


def _shared_files(cluster: Cluster, directory: Path, folder: Path) -> SharedFiles:
    """Return the files through which the workers of a cluster read data of this process."""
    if not isinstance(cluster, RemoteCluster):
        return UnnamedFiles(directory)
    # Whether agents see the run directory is known only once they have joined; see `Carrier.bring`.
    limited = not cluster.shared_files and cluster.depot is None
    return RunFiles(folder, cluster.carry_mb << 20 if limited else None)
