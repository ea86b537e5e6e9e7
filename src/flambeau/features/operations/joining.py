"""Columns of a table, added to each row by a key."""

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, PrivateAttr, field_serializer

from flambeau.config import FileData
from flambeau.config.data import is_frame
from flambeau.config.settings import nearest
from flambeau.data.arrow_columns import is_text
from flambeau.data.data_kinds import as_files, is_paths
from flambeau.errors import ConfigError, DataError
from flambeau.features.keys import Keys, item_type, keys_of, plain_values
from flambeau.features.operation import Arrays, Operation, State, Step, TrainingRows
from flambeau.features.raw_data import open_rows
from flambeau.features.selection import Columns, select
from flambeau.features.vocabulary import Vocabulary


def _files(given: Any) -> Any:
    """Return paths and saved files as `FileData`, and data in memory unchanged."""
    if is_paths(given):
        return as_files(given)
    if isinstance(given, Mapping) and isinstance(given.get("kind"), str):
        return FileData.model_validate(given)
    if given is None or isinstance(given, FileData | Mapping) or is_frame(given):
        return given
    raise ValueError(
        "give fb.files(...), a path, a data frame, an Arrow table or a dict of columns"
    )


@final
class Join(Operation):
    """Columns of a `table` added to each row, from the table's row with the same key.

    The column `on` is the key, in the rows and in the table. `columns` are the columns to add, by
    default all others, with `prefix` before their names. Rows whose key is missing or not in the
    table get missing values. The table is `fb.files(...)`, a path, a data frame, an Arrow table or
    a dict of columns; it is read when the pipeline is fitted, and saved with it.
    """

    kind = "join"

    table: Annotated[Any, BeforeValidator(_files), Field(repr=False)] = None
    on: str
    columns: Columns | None = None
    prefix: str = ""
    #: The schema of the table (base64), for a pipeline that is loaded without the table.
    arrow_schema: str | None = Field(default=None, repr=False)
    _schema: pa.Schema | None = PrivateAttr(default=None)

    def __init__(self, table: Any = None, **values: Any) -> None:
        super().__init__(**{"table": table, **values})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_serializer("table")
    def _saved_table(self, table: Any) -> Any:
        return table.model_dump(mode="json") if isinstance(table, FileData) else None

    def dump(self) -> dict[str, Any]:
        schema = base64.b64encode(self._table_schema().serialize().to_pybytes())
        return {**super().dump(), "arrow_schema": schema.decode("ascii")}

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        if self.on not in schema.names:
            hint = nearest(self.on, schema.names)
            raise DataError(f"{self}: the rows have no column '{self.on}' for on=; {hint}")
        return (self.on,)

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        self._require_same_keys(schema.field(self.reads(schema)[0]).type)
        types = self._table_schema()
        return {self.prefix + name: types.field(name).type for name in self._added()}

    def tables(self, schema: pa.Schema) -> dict[str, pa.Table]:
        for name in self.writes(schema):
            if name in schema.names:
                raise DataError(
                    f"{self}: the rows have a column '{name}' already; give the table's columns "
                    "other names with prefix=, or Drop this one first"
                )
        table = self._read()
        if (repeated := _repeated(table[self.on])) is not None:
            raise DataError(
                f"{self}: the table has several rows with {self.on}={repeated!r}; keep one of them"
            )
        return {_TABLE: table}

    def bind(self, schema: pa.Schema, state: State) -> Step:
        table = state[_TABLE]
        places_of = _lookup(table[self.on])
        types = self._table_schema()
        # Parquet has fewer types than Arrow.
        columns = {
            self.prefix + name: table[name].cast(types.field(name).type).combine_chunks()
            for name in self._added()
        }

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            places = places_of(arrays[self.on])
            indices = pa.array(places, mask=places < 0)
            return {out: column.take(indices) for out, column in columns.items()}

        return step

    def narrowed(self, schema: pa.Schema, wanted: Collection[str]) -> Operation | None:
        kept = tuple(name for name in self._added() if self.prefix + name in wanted)
        return self.model_copy(update={"columns": kept}) if kept else None

    def _require_same_keys(self, rows: pa.DataType) -> None:
        """Raise an error unless keys of the rows can be compared with those of the table."""
        schema = self._table_schema()
        if self.on not in schema.names:
            hint = nearest(self.on, schema.names)
            raise DataError(f"{self}: the table has no column '{self.on}' for on=; {hint}")
        table = schema.field(self.on).type
        for kind in (rows, table):
            try:
                keys_of(pa.array([], _family(kind)))
            except TypeError as error:
                raise DataError(f"{self}: the key '{self.on}' holds {kind}: {error}") from None
        if not pa.types.is_null(rows) and _family(rows) != _family(table):
            raise DataError(
                f"{self}: the key '{self.on}' holds {rows} in the rows and {table} in the table; "
                "Cast one of them to the type of the other"
            )

    def _added(self) -> tuple[str, ...]:
        """Return the table's columns to add."""
        others = [name for name in self._table_schema().names if name != self.on]
        try:
            return tuple(others) if self.columns is None else select(self.columns, others)
        except DataError as error:
            raise DataError(f"{self}: in the table, {error}") from None

    def _table_schema(self) -> pa.Schema:
        """Return the schema of the table, without reading its rows."""
        if self._schema is None:
            if self.arrow_schema is not None:
                data = base64.b64decode(self.arrow_schema)
                self._schema = pa.ipc.read_schema(pa.py_buffer(data))
            else:
                self._schema = open_rows(self._given()).schema.remove_metadata()
        return self._schema

    def _given(self) -> Any:
        if self.table is None:
            raise ConfigError(
                f"{self}: there is no table to read. One that was in memory is not in the settings "
                "of a saved pipeline: to fit it again, make a new Join(table, on=...)"
            )
        return self.table

    def _read(self) -> pa.Table:
        """Return the rows of the table that have a key, with the key and the added columns."""
        source, known = open_rows(self._given()), self._table_schema()
        names = [self.on, *self._added()]
        schema = pa.schema([known.field(name) for name in names])
        found = {field.name: field.type for field in source.schema}
        if any(found.get(field.name) != field.type for field in schema):
            raise DataError(
                f"{self}: the table has other columns than before; make a new Join(table, on=...)"
            )
        batches = (batch for shard in source.shards() for batch in source.read(shard, names))
        table = pa.Table.from_batches([batch.select(names) for batch in batches], schema)
        return table.filter(pc.is_valid(table[self.on])).combine_chunks()


_TABLE = "table"


def _family(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are compared: int64 for integers of any width."""
    types = pa.types
    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_integer(kind) or types.is_null(kind):
        return pa.int64()
    return pa.large_binary() if is_text(kind) else kind


def _lookup(table: pa.ChunkedArray) -> Callable[[pa.Array], Keys]:
    """Return a function that finds the table row of each key, or -1 if there is none."""
    family = _family(table.type)
    vocabulary = Vocabulary(pa.chunked_array(map(_comparable, table.chunks), family))
    unsigned = pa.types.is_uint64(item_type(table.type))

    def places(column: pa.Array) -> Keys:
        keys, kind = _comparable(column), item_type(column.type)
        found = vocabulary.places(keys)
        if pa.types.is_integer(kind) and pa.types.is_uint64(kind) != unsigned:
            # These bits are a negative number on one side and exceed int64 on the other.
            found[pc.less(keys, 0).fill_null(False).to_numpy(zero_copy_only=False)] = -1
        return found

    return places


def _comparable(column: pa.Array) -> pa.Array:
    """Return keys in the type of their family; integers by their bits."""
    values = plain_values(column)
    if pa.types.is_uint64(values.type):
        return values.view(pa.int64())
    return values.cast(_family(values.type))


def _repeated(keys: pa.ChunkedArray) -> Any:
    """Return a key that occurs several times; None if there is none."""
    values = pa.chunked_array(map(_comparable, keys.chunks), _family(keys.type)).combine_chunks()
    numbers = keys_of(values)
    order = np.argsort(numbers, kind="stable")
    same = np.flatnonzero(numbers[order[1:]] == numbers[order[:-1]])
    return keys[int(order[same[0]])].as_py() if same.size else None
