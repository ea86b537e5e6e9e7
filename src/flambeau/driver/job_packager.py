"""From what the user passed to `fit` to settings that can travel."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from flambeau.checkpoint.user_code import Packer
from flambeau.config import (
    ArrayData,
    Binding,
    CodeRef,
    DataRef,
    DatasetData,
    FileData,
    FrameData,
    LoaderData,
    OptimizerSpec,
    SpooledData,
)
from flambeau.config.data import is_frame, is_spark_frame
from flambeau.config.settings import Settings, nearest
from flambeau.data.data_kinds import as_files, is_arrays, is_paths, takes_an_argument
from flambeau.data.data_loaders import is_data_loader, rows_of
from flambeau.errors import ConfigError, DataError


@dataclass
class JobPackager:
    """Collects the user's code and arrays while arguments are turned into settings.

    `fds` are the descriptors of shared arrays, open as long as the `with` lasts.
    """

    directory: Path
    packer: Packer = field(default_factory=Packer)
    fds: list[int] = field(default_factory=list)
    #: Data frames of the cluster's engine, by name.
    frames: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the shared arrays."""
        for descriptor in self.fds:
            os.close(descriptor)
        self.fds.clear()

    def model(self, model: Any) -> CodeRef:
        """An instance, a class or a function that builds one, or a reference."""
        if isinstance(model, CodeRef):
            return model
        if not callable(model):
            raise ConfigError(
                f"model= is a {type(model).__name__}; give an nn.Module, or a class or function "
                "that builds one"
            )
        return self.packer.add(model, "model")

    def code(self, value: Any, name: str) -> Any:
        """Functions as references; names and settings as they are."""
        if value is None or isinstance(value, str | CodeRef | Settings):
            return value
        if isinstance(value, Mapping):
            return {key: self.code(item, f"{name}-{key}") for key, item in value.items()}
        return self.packer.add(value, name)

    def optimizer(self, value: Any, name: str = "optimizer") -> Any:
        """A name, a spec, a function of the parameters, or several by submodule."""
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
        """A kind by name, settings (also as a dict), or a function of the optimizer."""
        if isinstance(value, str):
            return {"kind": value}
        return value if isinstance(value, Mapping) else self.code(value, "schedule")

    def callbacks(self, callbacks: Sequence[Any]) -> tuple[CodeRef, ...]:
        """Instances or classes, in order."""
        return tuple(
            self.packer.add(callback, f"callback-{index}")
            for index, callback in enumerate(callbacks)
        )

    def data(self, data: Any, name: str, binding: Binding | None = None) -> DataRef | None:
        """Files, arrays, a Dataset, or a function; the binding says where arrays may hold NaN.

        The labels of frames are looked for at once: frames meet in one, where they are empty.
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
            for column in binding.labels:
                if column not in data.columns:
                    hint = nearest(column, data.columns)
                    raise DataError(f"{name}= has no column '{column}', which is a label; {hint}")
            self.frames[name] = data
            return SpooledData(name=name, columns=tuple(data.columns))
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

    def _frame(self, data: Any, name: str) -> FrameData:
        from flambeau.data.frames import as_table
        from flambeau.data.sources.frame_source import share_frame

        shared = share_frame(as_table(data, f"{name}="), self.directory, f"{name}=")
        self.fds.append(shared.fd)
        return shared

    def _arrays(self, data: Any, binding: Binding) -> ArrayData:
        from flambeau.data.sources.shared_arrays import array_columns, share_arrays

        columns, inputs, labels = array_columns(data)
        refs, descriptors = share_arrays(columns, self.directory, binding.nullable(columns, labels))
        self.fds += descriptors
        return ArrayData(columns=refs, inputs=inputs, labels=labels)

    def _function(self, function: Callable[..., Any], name: str) -> DataRef:
        ref = self.packer.add(function, name)
        if takes_an_argument(function):
            return LoaderData(code=ref)
        return DatasetData(code=ref.model_copy(update={"call": True}))
