"""An export in use: columns in, predictions out, without the model's code or a server."""

from collections.abc import Sequence
from typing import Any, final

import pyarrow as pa
import torch
from torch import Tensor

from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.images import ImageTransform
from flambeau.data.jagged import Jagged
from flambeau.errors import DataError
from flambeau.inference import graph_files
from flambeau.inference.arguments import Leaf, take_apart
from flambeau.inference.export_chain import Chain
from flambeau.inference.export_description import Bound, GraphInput, like_forward
from flambeau.inference.exported_tables import ExportedTables
from flambeau.inference.given_rows import as_records
from flambeau.inference.looking_up import LookUps
from flambeau.inference.scorer import Scorer

ROWS_AT_ONCE = 1 << 14


@final
class LoadedExport:
    """What is asked of a predictor, from an export. Any number of threads may ask."""

    def __init__(self, chain: Chain, *, trust: bool) -> None:
        self.folder, self.description = chain.folders[0], chain.newest
        kind = self.description.graph.format
        self._graph = graph_files.load(kind, chain.graph_path(), trust=trust)
        self._look_up = None
        if self.description.graph.lookups == "outside":
            tables = ExportedTables(chain.tables())
            self._look_up = LookUps(self.description.lookups, tables)
        self._parameters = [each.name for each in self.description.forward if not each.batch]
        self._binders: dict[tuple[str, ...], tuple[Binder, Scorer]] = {}

    @property
    def id(self) -> str:
        """Tells one export from another."""
        return self.description.id

    def predict(self, data: Any) -> pa.Table:
        """Keys that are there, and predictions, one row for each row of the data."""
        records = as_records(data, self.description.columns)
        binder, scorer = self._bound(tuple(records.schema.names))
        return pa.Table.from_batches(
            [
                scorer.score(binder.read(records.slice(start, ROWS_AT_ONCE)), binder)
                for start in range(0, records.num_rows, ROWS_AT_ONCE)
            ]
        )

    def _bound(self, names: tuple[str, ...]) -> tuple[Binder, Scorer]:
        """How these columns meet the graph; worked out once for each set of columns."""
        if names not in self._binders:
            self._binders[names] = bind(self.description, names, self._forward)
        return self._binders[names]

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


def bind(description: Bound, names: tuple[str, ...], model: Any) -> tuple[Binder, Scorer]:
    """How columns of these names meet a model that was exported, and who applies it."""
    keys = tuple(key for key in description.binding.keys if key in names)
    binding = description.binding.model_copy(update={"keys": keys, "label": None})
    shape = Shape(names, description.positional)
    dtype = getattr(torch, description.dtype)
    binder = Binder(binding, like_forward(description.forward), shape, dtype)
    images = description.images
    transform = None if images is None else _Images(ImageTransform(images))
    return binder, Scorer(model, description.loss, keys, transform)


class _Images:
    """Prepares images as in evaluation."""

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
