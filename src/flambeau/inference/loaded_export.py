"""A loaded export: columns in, predictions out, without the model's code or a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa
import torch
from torch import Tensor

from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.images import ImageTransform
from flambeau.data.jagged import Jagged
from flambeau.data.raw_columns import Features
from flambeau.errors import DataError
from flambeau.inference import graph_files
from flambeau.inference.arguments import Leaf, take_apart
from flambeau.inference.export_chain import Chain
from flambeau.inference.export_description import FEATURES, Bound, GraphInput, like_forward
from flambeau.inference.exported_tables import ExportedTables
from flambeau.inference.given_rows import as_records
from flambeau.inference.looking_up import LookUps
from flambeau.inference.scorer import Scorer
from flambeau.inference.shorthands import expand

if TYPE_CHECKING:
    from flambeau.features.pipeline import Pipeline

ROWS_AT_ONCE = 1 << 14


@final
class LoadedExport:
    """Predictor of an export. Thread-safe."""

    def __init__(self, chain: Chain, *, trust: bool) -> None:
        self.folder, self.description = chain.folders[0], chain.newest
        kind = self.description.graph.format
        self._graph = graph_files.load(kind, chain.graph_path(), trust=trust)
        self._look_up = None
        if self.description.graph.lookups == "outside":
            tables = ExportedTables(chain.tables())
            self._look_up = LookUps(self.description.lookups, tables)
        self._parameters = [each.name for each in self.description.forward if not each.batch]
        self._pipeline: Pipeline | None = None
        if self.description.features is not None:
            self._pipeline = _pipeline_in(self.folder / FEATURES, trust=trust)
        self._binders: dict[Any, tuple[Binder, Scorer]] = {}
        self._last: tuple[pa.Schema, tuple[Binder, Scorer]] | None = None

    @property
    def id(self) -> str:
        """Id of the export."""
        return self.description.id

    def predict(self, data: Any) -> pa.Table:
        """Return existing keys and predictions, one row for each row of the data."""
        records = as_records(data, self.description.columns)
        binder, scorer = self._bound(records.schema)
        return pa.Table.from_batches(
            [
                scorer.score(binder.read(records.slice(start, ROWS_AT_ONCE)), binder)
                for start in range(0, records.num_rows, ROWS_AT_ONCE)
            ]
        )

    def _bound(self, schema: pa.Schema) -> tuple[Binder, Scorer]:
        """Return the binder and scorer for these columns; they are cached."""
        last = self._last
        if last is not None and last[0].equals(schema):
            return last[1]
        known = tuple(schema.names) if self._pipeline is None else schema
        if known not in self._binders:
            self._binders[known] = bind(self.description, schema, self._forward, self._pipeline)
        self._last = schema, self._binders[known]
        return self._binders[known]

    def _forward(self, *positional: Any, **named: Any) -> Any:
        _, values = take_apart(positional, named, self._parameters)
        found = [] if self._look_up is None else self._look_up(values)
        inputs = self.description.graph.inputs
        rest = [_tensor(values[each.argument], each) for each in inputs if each.argument]
        return self._output(self._graph([*found, *rest]))

    def _output(self, tensors: Sequence[Tensor]) -> Any:
        kind = self.description.graph.output
        if kind == "tensor":
            return tensors[0]
        if kind == "tuple":
            return tuple(tensors)
        return dict(zip(self.description.graph.outputs, tensors, strict=True))


def bind(
    description: Bound, schema: pa.Schema, model: Any, pipeline: "Pipeline | None" = None
) -> tuple[Binder, Scorer]:
    """Return the binder of these columns to an exported model, and the scorer.

    With a `pipeline`, the columns are raw ones, from which it makes features.
    """
    features = None if pipeline is None else features_of(pipeline, schema)
    names = tuple(schema.names) if features is None else features.columns
    keys = tuple(key for key in description.binding.keys if key in names)
    binding = description.binding.model_copy(update={"keys": keys, "label": None})
    shape = Shape(names, description.positional)
    dtype = getattr(torch, description.dtype)
    forward = like_forward(description.forward)
    binder = Binder(binding, forward, shape, dtype, features=features, expand=expand)
    images = description.images
    transform = None if images is None else _Images(ImageTransform(images))
    return binder, Scorer(model, description.loss, keys, transform)


def _pipeline_in(folder: Path, *, trust: bool) -> "Pipeline":
    """Return a pipeline of features; `trust` allows operations that run code."""
    from flambeau.features.pipeline import Pipeline  # loads Numba, which is rarely needed

    return Pipeline.load(folder, trust=trust)


def features_of(pipeline: "Pipeline", schema: pa.Schema) -> Features:
    """Return the features that a pipeline makes from rows with these columns."""
    from flambeau.features.source_features import PipelineFeatures

    return PipelineFeatures(pipeline, schema)


class _Images:
    """Image transform, as in evaluation."""

    def __init__(self, transform: ImageTransform) -> None:
        self._transform = transform

    def __call__(self, batch: Batch) -> Batch:
        return self._transform(batch, train=False, seed=0)


def _tensor(value: Leaf, given: GraphInput) -> Tensor:
    if not isinstance(value, Jagged):
        return value
    if value.row_shape is not None and given.missing is not None:
        return value.in_places(given.missing).to(getattr(torch, given.dtype))
    raise DataError(
        f"'{given.argument}' has missing ids, or several in a row, and the graph of this export "
        "takes one in each place: export with inside_mb=0 and data= that is like this (on the "
        "command line --inside-mb 0 and --data)"
    )
