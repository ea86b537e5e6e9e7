"""Pipelines: operations in order, fitted once and applied identically to rows of any source."""

import importlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self, final

import pyarrow as pa

from flambeau.config import Observe
from flambeau.config.data import FILE_FORMATS
from flambeau.config.settings import nearest
from flambeau.data.source import StreamedSource
from flambeau.errors import ConfigError, DataError
from flambeau.features import saved
from flambeau.features.bound_pipeline import (
    BoundPipeline,
    needed_operations,
    schemas_along,
    sizes_of,
)
from flambeau.features.digest import digest_of
from flambeau.features.engines.engine_frame import EngineFrame, engine_frame, is_engine_frame
from flambeau.features.engines.engine_work import MakeFeatures
from flambeau.features.engines.partial_statistics import fit_frame
from flambeau.features.fitting import fit_operations
from flambeau.features.fused_reading import fuse
from flambeau.features.operation import Operation, State
from flambeau.features.preparing.prepared import PIPELINE, Prepared
from flambeau.features.raw_data import open_rows
from flambeau.features.splits import Split
from flambeau.observe import stage_display

#: The functions that prepare features and fit on a cluster. They depend on this module, and so are
#: named here, not imported.
_PREPARE = "flambeau.driver.parts.prepare:prepare"
_FIT = "flambeau.driver.fit_features:fit"


@final
class Pipeline:
    """Operations that turn raw columns into features.

    pipeline = ft.Pipeline([ft.Log("price"), ft.Categorify(["user", "item"], min_count=2)])
    pipeline.fit(train)
    pipeline.transform(new)

    `fit` gathers the statistics that operations need from training rows; `transform` uses them.
    `format` is the format of files whose names and first bytes do not identify it.
    """

    def __init__(self, operations: Sequence[Operation], *, format: str | None = None) -> None:
        if format is not None and format not in FILE_FORMATS:
            raise ConfigError(f"format={format!r} is not known; {nearest(format, FILE_FORMATS)}")
        for operation in operations:
            if not isinstance(operation, Operation):
                raise ConfigError(
                    f"a pipeline has operations such as ft.Log('price'), not {operation!r}"
                )
        self.operations = tuple(operations)
        self.format = format
        #: The columns that it was fitted on; None before `fit`.
        self.schema_: pa.Schema | None = None
        #: The statistics of each operation; None before `fit`.
        self.states_: tuple[State, ...] | None = None

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(map(str, self.operations))})"

    @property
    def is_fitted(self) -> bool:
        """Return whether it has the statistics that its operations need."""
        return self.states_ is not None

    def fit(
        self,
        data: Any,
        *,
        cluster: Any = None,
        memory: int | str | None = None,
        observe: Any = None,
    ) -> Self:
        """Fit on training rows, with at most about `memory` bytes ("4G") of statistics in memory.

        The rest is written to temporary files. The work runs in this process, or in those of a
        `cluster`. For a Spark DataFrame or a Ray Dataset, each task of the engine gathers its part,
        with `memory` bytes of its own (256 MB by default). Progress is shown if it takes more than
        a few seconds; `observe` is as in `fb.fit`.
        """
        if is_engine_frame(data):
            frame = engine_frame(data)
            self.states_ = fit_frame(self.operations, frame, memory)
            self.schema_ = frame.schema
            return self
        if cluster is not None:
            fit = _named(_FIT)
            self.states_, self.schema_ = fit(
                self.operations, data, cluster, memory, self.format, observe
            )
            return self
        source, shown = open_rows(data, self.format), Observe.parse(observe or {})
        observer = stage_display(shown.progress, shown.every_seconds)
        try:
            self.states_ = fit_operations(self.operations, source, memory, observer)
        finally:
            observer.close()
        self.schema_ = source.schema
        return self

    def fit_transform(
        self,
        data: Any,
        *,
        out: str | os.PathLike[str],
        split: Split | None = None,
        cluster: Any = None,
        memory: int | str | None = None,
        observe: Any = None,
        report: bool | str | os.PathLike[str] = False,
    ) -> Prepared:
        """Fit on the training rows, and write the features of all rows to the folder `out`.

        `split` divides the rows into subsets (`ft.by_time`, `by_file`, `by_hash`, `by_ratio`);
        without one, all are training rows. The work runs in the processes of a `cluster`, by
        default one for each core, with about `memory` bytes ("4G") for statistics. The same call
        resumes an interrupted one. `observe` is as in `fb.fit`: `{"progress": "none"}` shows
        nothing. With `report`, it also writes a page with a picture of each column, to
        `report.html` in the folder or to the given path.
        """
        prepare = _named(_PREPARE)
        prepared: Prepared = prepare(
            self.operations, data, split, out, cluster, memory, format=self.format, observe=observe
        )
        fitted = Pipeline.load(prepared.folder / PIPELINE, trust=True)
        self.schema_, self.states_ = fitted.schema_, fitted.states_
        if report:
            prepared.report(None if report is True else report)
        return prepared

    def transform(self, data: Any) -> Any:
        """Return the features of a dict of columns, a data frame or files, as an Arrow table.

        For a Spark DataFrame or a Ray Dataset, return another one, computed lazily.
        """
        if is_engine_frame(data):
            return self._transform_frame(engine_frame(data))
        source, pipeline = self.fused(open_rows(data, self.format))
        bound = pipeline.bind(source.schema)
        return pa.Table.from_batches(bound.batches(source), bound.schema)

    def _transform_frame(self, frame: EngineFrame) -> Any:
        bound = self.bind(frame.schema)  # raises errors before the engine starts
        assert self.states_ is not None
        work = MakeFeatures(self.operations, self.states_, bound.raw_schema)
        return frame.map(work, bound.schema)

    def fused(self, source: StreamedSource) -> "tuple[StreamedSource, Pipeline]":
        """Return a source that does the first operations itself, if it can, and the others."""
        source, done = fuse(source, self.operations)
        if not done:
            return source, self
        rest = Pipeline(self.operations[done:])
        if self.states_ is not None:
            rest.states_, rest.schema_ = self.states_[done:], self._schemas()[done]
        return source, rest

    def bind(self, schema: pa.Schema, needed: Sequence[str] | None = None) -> BoundPipeline:
        """Return the function for rows with these columns.

        With `needed`, it makes only these columns, and skips operations that they do not depend on,
        such as those for a label, which rows to predict do not have.
        """
        if self.states_ is None or self.schema_ is None:
            raise ConfigError("this pipeline is not fitted: call its fit with training rows first")
        schema = _typed(schema, self.schema_)
        if needed is None:
            return BoundPipeline(self.operations, self.states_, schema)
        kept, raw = needed_operations(self.operations, self._schemas(), needed)
        for name in sorted(raw):
            if name not in schema.names:
                raise DataError(
                    f"the rows have no column '{name}', of which features are made; they have "
                    f"{', '.join(schema.names)}"
                )
        pairs = list(zip(kept, self.states_, strict=True))
        operations = [operation for operation, _ in pairs if operation is not None]
        states = [state for operation, state in pairs if operation is not None]
        fields = [field for field in schema if field.name in raw]
        return BoundPipeline(operations, states, pa.schema(fields), needed)

    def columns_from(self, raw: Collection[str]) -> tuple[str, ...]:
        """Return the features that can be made of raw columns, and other raw columns."""
        schemas = self._schemas()
        made = [
            name
            for name in schemas[-1].names
            if needed_operations(self.operations, schemas, [name])[1] <= set(raw)
        ]
        others = (name for name in raw if name not in schemas[0].names)
        return tuple(dict.fromkeys([*made, *others]))

    @property
    def sizes_(self) -> dict[str, int]:
        """The number of distinct ids of each id column, including 0.

        Pass it to a model: `DLRM(sizes=pipeline.sizes_, dense_below=1000)`.
        """
        if self.states_ is None:
            raise ConfigError("this pipeline is not fitted, so sizes are not known: call its fit")
        assert self.schema_ is not None
        return sizes_of(self.operations, self.states_, self.schema_)

    def _schemas(self) -> list[pa.Schema]:
        """Return the columns before each operation and after the last, of the training rows."""
        assert self.schema_ is not None
        assert self.states_ is not None
        return schemas_along(self.operations, self.states_, self.schema_)

    @property
    def digest(self) -> str:
        """The digest that identifies this fitted pipeline."""
        assert self.states_ is not None
        return digest_of(self.operations, self.states_)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it to a new folder: settings as JSON, statistics as Parquet."""
        if self.states_ is None or self.schema_ is None:
            raise ConfigError("this pipeline is not fitted: there is nothing to save but its code")
        saved.save(Path(folder), self.operations, self.schema_, self.states_, self.format)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, trust: bool = False) -> Self:
        """Return the pipeline that `save` wrote.

        A pipeline with `Custom` operations runs code, and requires `trust=True`.
        """
        operations, schema, states, format = saved.load(Path(folder), trust=trust)
        pipeline = cls(operations, format=format)
        pipeline.schema_, pipeline.states_ = schema, states
        return pipeline


def _named(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _typed(schema: pa.Schema, fitted: pa.Schema) -> pa.Schema:
    """Return a schema in which columns without any value have the types of the training rows."""
    return pa.schema(
        fitted.field(field.name)
        if pa.types.is_null(field.type) and field.name in fitted.names
        else field
        for field in schema
    )
