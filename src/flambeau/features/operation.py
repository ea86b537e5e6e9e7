"""The steps of a pipeline: operations on groups of columns.

An operation consists of settings, so that it can be saved to a file and loaded again. It declares
the columns that it reads and writes, and the statistics of the training rows that it needs. Bound
to the types of its columns and to those statistics, it becomes a function of Arrow arrays that
training, preparation and prediction share.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from flambeau.config.settings import Settings, nearest
from flambeau.errors import ConfigError, DataError
from flambeau.features.selection import Columns, select
from flambeau.features.statistics.statistic import Statistic

#: Up to this number of rows, the columns of a group are concatenated for one call.
FEW_ROWS = 1 << 10
#: Columns by name: what operations read and write.
Arrays = Mapping[str, pa.Array]
#: Statistics by name, each as a table.
State = Mapping[str, pa.Table]


@dataclass(frozen=True)
class TrainingRows:
    """The position of a batch in the training data: rows of one shard, starting at `first`."""

    shard: int
    first: int


#: A bound operation: a function that returns the columns that it writes, given those that it reads.
#: Rows are passed for training data only.
Step = Callable[[Arrays, TrainingRows | None], dict[str, pa.Array]]


class Operation(Settings):
    """The base class of all operations. Subclasses are final; `kind` is their name in files."""

    kind: ClassVar[str]
    #: Whether it runs code that its settings name: loading files with it requires `trust=True`.
    runs_code: ClassVar[bool] = False
    #: Whether it treats training rows differently, which only a preparation supports.
    out_of_fold: ClassVar[bool] = False
    #: Whether its statistics are vocabularies: the value in row k of a table has the id k + 1.
    numbers_values: ClassVar[bool] = False
    _known: ClassVar[dict[str, type["Operation"]]] = {}

    def __init_subclass__(cls, **values: Any) -> None:
        super().__init_subclass__(**values)
        if "kind" in cls.__dict__:
            Operation._known[cls.kind] = cls

    @abstractmethod
    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that it reads, of those in `schema`.

        Columns that are read only to gather statistics are not included.
        """

    @abstractmethod
    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        """Return the columns that it adds or replaces, with their types."""

    def fitted_writes(self, schema: pa.Schema, state: State) -> dict[str, pa.DataType]:
        """Return the result of `writes`, with the types that depend on its statistics."""
        return self.writes(schema)

    def removes(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that it removes."""
        return ()

    def sizes(self, schema: pa.Schema, state: State) -> dict[str, int]:
        """Return the number of distinct ids of each result, including 0, if it assigns ids."""
        return {}

    def vocabularies(self, schema: pa.Schema) -> dict[str, str]:
        """Return the table of values and counts behind each result, if it assigns ids."""
        return {}

    def statistics(self, schema: pa.Schema) -> dict[str, Statistic]:
        """Return the statistics of its columns that it needs, under names of its choice."""
        return {}

    def tables(self, schema: pa.Schema) -> dict[str, pa.Table]:
        """Return the tables that it needs besides statistics, read when it is fitted."""
        return {}

    @abstractmethod
    def bind(self, schema: pa.Schema, state: State) -> Step:
        """Return the function for columns of these types, with the statistics that it needs."""

    def narrowed(self, schema: pa.Schema, wanted: Collection[str]) -> "Operation | None":
        """Return the part of it that makes the wanted columns; None if it makes none of them."""
        return None if self.writes(schema).keys().isdisjoint(wanted) else self

    def dump(self) -> dict[str, Any]:
        """Return its settings as plain values, for a file."""
        return {"kind": self.kind, **self.model_dump(mode="json")}

    @staticmethod
    def kinds() -> Mapping[str, type["Operation"]]:
        """Return all operations by their names in files."""
        return Operation._known

    @staticmethod
    def load(values: Mapping[str, Any]) -> "Operation":
        """Return the operation that `dump` wrote."""
        values = dict(values)
        name = str(values.pop("kind", ""))
        if name not in Operation._known:
            raise ConfigError(f"no operation is called {name!r}; {nearest(name, Operation._known)}")
        return Operation._known[name].parse(values, name)

    def __str__(self) -> str:
        return self.kind


def schema_after(operation: Operation, schema: pa.Schema, state: State | None = None) -> pa.Schema:
    """Return the columns and types after an operation; new columns come last.

    Types that depend on statistics require its `state`.
    """
    written = operation.writes(schema) if state is None else operation.fitted_writes(schema, state)
    removed = set(operation.removes(schema)) - written.keys()
    fields = [
        pa.field(field.name, written.get(field.name, field.type))
        for field in schema
        if field.name not in removed
    ]
    fields += [pa.field(name, kind) for name, kind in written.items() if name not in schema.names]
    return pa.schema(fields)


class ColumnOperation(Operation):
    """The base class of operations that make one column from each column.

    `out` names the results: one name, one for each column, or a pattern with `{}` for the column's
    own name. Without it, results replace the columns.
    """

    columns: Columns
    out: Columns | None = None

    def __init__(self, columns: str | Sequence[str] = (), **values: Any) -> None:
        super().__init__(**{"columns": columns, **values})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        return select(self.columns, schema.names)

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        return {
            out: self._typed(name, schema.field(name).type)
            for name, out in self.outputs(schema).items()
        }

    def outputs(self, schema: pa.Schema) -> dict[str, str]:
        """Return the name of the result for each column."""
        names = self.reads(schema)
        if self.out is None:
            return {name: name for name in names}
        if len(self.out) == 1 and "{}" in self.out[0]:
            return {name: self.out[0].replace("{}", name) for name in names}
        if len(self.out) != len(names):
            raise ConfigError(
                f"{self}: out= has {len(self.out)} names for {len(names)} columns; give one for "
                "each, or a pattern such as out='{}_new'"
            )
        return dict(zip(names, self.out, strict=True))

    def narrowed(self, schema: pa.Schema, wanted: Collection[str]) -> Operation | None:
        kept = {name: out for name, out in self.outputs(schema).items() if out in wanted}
        if not kept:
            return None
        return self.model_copy(update={"columns": tuple(kept), "out": tuple(kept.values())})

    def _typed(self, name: str, kind: pa.DataType) -> pa.DataType:
        try:
            return self.type_of(kind)
        except TypeError as error:
            raise DataError(f"{self}: column '{name}' holds {kind}: {error}") from None

    @abstractmethod
    def type_of(self, kind: pa.DataType) -> pa.DataType:
        """Return the result type for a column of this type; raise `TypeError` if there is none."""

    @abstractmethod
    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        """Return the function that makes the result of a column."""

    def bind(self, schema: pa.Schema, state: State) -> Step:
        converters = [
            (name, out, self.converter(name, schema.field(name).type, state))
            for name, out in self.outputs(schema).items()
        ]

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            return {out: convert(arrays[name]) for name, out, convert in converters}

        return step
