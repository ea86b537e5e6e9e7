"""A preparation of features described in a YAML file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, final

import pyarrow as pa
import pydantic
from pydantic import BeforeValidator, Field

from flambeau.config import FileData, Observe
from flambeau.config.choices import ClusterChoice
from flambeau.config.overrides import COMMAND_LINE, override
from flambeau.config.settings import Settings, mistakes
from flambeau.config.shorthands import data_form
from flambeau.config.yaml_text import read_yaml
from flambeau.data.data_kinds import is_paths
from flambeau.errors import ConfigError, DataError, UserError
from flambeau.features.operation import Operation, schema_after
from flambeau.features.pipeline import Pipeline
from flambeau.features.preparing import written
from flambeau.features.selection import select
from flambeau.features.splits import Split

Value = TypeVar("Value")

#: Suffixes by which the path of features is recognized as a file of this kind.
SUFFIXES = (".yaml", ".yml")


def _files(value: Any) -> Any:
    form = data_form(value)
    if isinstance(form, dict) and "code" in form:
        raise ValueError("features are made of files: write a path, or {path:, format:, options:}")
    return form


class _Keys(Settings):
    """The keys of a file; `written` parses `operations`, `pipeline` and `split`."""

    data: Annotated[FileData, BeforeValidator(_files)] | None = None
    operations: list[Any] | None = Field(default=None, min_length=1)
    pipeline: str | dict[str, Any] | None = None
    split: Any = None
    out: str | None = None
    memory: int | float | str | None = None
    cluster: ClusterChoice | None = None
    report: bool | str = False
    observe: Observe = Observe()


@final
@dataclass(frozen=True)
class FeaturesFile:
    """The content of a features file: an unfitted pipeline, and optional preparation settings."""

    path: Path
    pipeline: Pipeline
    data: FileData | None
    split: Split | None
    out: str | None
    memory: str | None
    cluster: ClusterChoice | None
    report: bool | str
    observe: Observe

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise an error that names the operation whose columns the data lack."""
        if self.split is not None:
            reads, names = self.split.reads, schema.names
            _named(f"{self.path}: split", "", lambda: select(reads, names))
        for number, operation in enumerate(self.pipeline.operations, start=1):
            where = f"{self.path}: operation {number} ({operation.kind})"
            schema = _named(where, f"{operation}: ", lambda: _after(operation, schema))  # noqa: B023


def is_features_file(given: Any) -> bool:
    """Return whether `given` is the path of a features file, by its suffix."""
    return is_paths(given) and str(given).endswith(SUFFIXES)


def load_features_file(path: str | Path, overrides: Sequence[str] = ()) -> FeaturesFile:
    """Load a file with `key=value` overrides; raise one error with a line for each mistake."""
    path = Path(path)
    values = read_yaml(path, needs="'operations' (or 'pipeline') and 'data'")
    overridden = override(values, overrides)
    values = {key: value for key, value in values.items() if value is not None}
    wrong: list[str] = []
    keys = _keys(values, path, overridden, wrong)
    pipeline = _pipeline(values, str(path), wrong)
    split = None
    if "split" in values:
        split = _collected(wrong, lambda: written.split(values["split"], f"{path}: split"))
    if wrong or keys is None or pipeline is None:
        raise ConfigError("\n".join(wrong))
    memory = None if keys.memory is None else str(keys.memory)
    return FeaturesFile(
        path=path,
        pipeline=pipeline,
        data=keys.data,
        split=split,
        out=keys.out,
        memory=memory,
        cluster=keys.cluster,
        report=keys.report,
        observe=keys.observe,
    )


def _keys(
    values: dict[str, Any], path: Path, overridden: Sequence[str], wrong: list[str]
) -> _Keys | None:
    try:
        return _Keys.model_validate(values)
    except pydantic.ValidationError as error:
        for key, line in mistakes(error, _Keys):
            given = any(key == name or key.startswith(f"{name}.") for name in overridden)
            wrong.append(f"{COMMAND_LINE if given else path}: {line}")
    return None


def _pipeline(values: dict[str, Any], where: str, wrong: list[str]) -> Pipeline | None:
    """Return the pipeline of `operations`, or the one that `pipeline` names."""
    operations, named = values.get("operations"), values.get("pipeline")
    if (operations is None) == (named is None):
        wrong.append(f"{where}: write 'operations', or 'pipeline' for one of ours: one of the two")
        return None
    if named is not None:
        return _collected(wrong, lambda: written.pipeline(named, f"{where}: pipeline"))
    if not isinstance(operations, list):
        return None  # reported with the keys
    found = [
        _collected(wrong, lambda: written.operation(each, f"{where}: operation {number}"))  # noqa: B023
        for number, each in enumerate(operations, start=1)
    ]
    return None if None in found else Pipeline([each for each in found if each is not None])


def _collected(wrong: list[str], make: Callable[[], Value]) -> Value | None:
    try:
        return make()
    except UserError as error:
        wrong.append(str(error))
    return None


def _named(where: str, left_out: str, make: Callable[[], Value]) -> Value:
    try:
        return make()
    except (ConfigError, DataError) as error:
        raise type(error)(f"{where}: {str(error).removeprefix(left_out)}") from None


def _after(operation: Operation, schema: pa.Schema) -> pa.Schema:
    operation.reads(schema)
    after = schema_after(operation, schema)
    for statistic in operation.statistics(schema).values():
        select(statistic.columns, schema.names)
    return after
