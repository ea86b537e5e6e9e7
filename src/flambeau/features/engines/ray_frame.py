"""Ray Datasets: work in `map_batches`, on one block after the other."""

import re
from collections.abc import Callable, Iterator
from typing import Any, final

import pyarrow as pa
import ray
from ray.exceptions import RayError

from flambeau.clusters.ray.columns import plain_columns
from flambeau.errors import DataError, MissingDependencyError, UserError
from flambeau.features.engines.engine_frame import FAULT, EngineFrame, Work, raise_fault
from flambeau.features.engines.engine_work import Typed
from flambeau.features.engines.loaded_work import load_work, pack

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^'\n]+)'")


@final
class RayFrame(EngineFrame):
    """A Dataset of Ray Data."""

    name = "a Ray Dataset"
    writes = "dataset.write_parquet(...)"

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.schema = _schema_of(dataset)

    def map(self, work: Work, schema: pa.Schema) -> Any:
        """Return another Dataset: see `EngineFrame`."""
        packed = pack(Typed(work, schema))
        # Sent once per node, not once per task.
        function = _over_blocks(packed.digest, ray.put(packed.data), schema)
        return self._dataset.map_batches(function, batch_size=None, batch_format="pyarrow")

    def run(self, work: Work, schema: pa.Schema, key: str, parts: int) -> Iterator[dict[str, Any]]:
        """Return a stream of rows in the order in which they are made: see `EngineFrame`."""
        made = self.map(work, schema)
        try:
            for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
                yield from table.to_pylist()
        except RayError as error:
            raise_fault(error)
            _raise_lack(error)
            raise


def _over_blocks(digest: str, data: Any, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    def make(table: pa.Table) -> pa.Table:
        work = load_work(digest, lambda: ray.get(data))
        batches = work(iter(plain_columns(table).to_batches()))
        try:
            return pa.Table.from_batches(batches, schema)
        except UserError as error:
            raise RuntimeError(f"{FAULT}{error}") from error

    return make


def _schema_of(dataset: Any) -> pa.Schema:
    """Return the schema of a Dataset; Ray computes a few rows if it does not know it."""
    found = dataset.schema()
    if found is None:
        raise DataError("the Ray Dataset has no rows")
    if isinstance(found.base_schema, pa.Schema):
        schema = found.base_schema
    else:  # pandas blocks, in which texts are objects
        schema = next(iter(dataset.limit(1).iter_batches(batch_format="pyarrow"))).schema
    columns = [pa.chunked_array([_no_values(field.type)]) for field in schema]
    return plain_columns(pa.table(columns, schema.names)).schema


def _no_values(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))
    return pa.array([], kind)


def _raise_lack(error: RayError) -> None:
    """Raise an error that names the module that nodes lack, if that caused the failure."""
    found = _NO_MODULE.search(str(error))
    if found:
        raise MissingDependencyError(
            f"nodes of Ray have no module {found['name']!r}: install it there, or send it with "
            "runtime_env"
        ) from error
