"""Operations that select, drop and rename columns, or make them with a user's function."""

import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, final

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field

from flambeau.config.plural import number_of
from flambeau.config.settings import nearest
from flambeau.data.matching import quoted
from flambeau.errors import ConfigError, DataError
from flambeau.features.keys import is_list
from flambeau.features.operation import Arrays, Operation, State, Step, TrainingRows
from flambeau.features.selection import Columns, select


class _Removal(Operation):
    """The base class of operations that only remove columns."""

    columns: Columns = Field(min_length=1)

    def __init__(self, columns: str | Sequence[str] = (), **values: Any) -> None:
        super().__init__(**{"columns": columns, **values})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        return ()

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        return {}

    def bind(self, schema: pa.Schema, state: State) -> Step:
        return lambda arrays, rows: {}


@final
class Select(_Removal):
    """A selection of columns: all others are removed."""

    kind = "select"

    def removes(self, schema: pa.Schema) -> tuple[str, ...]:
        kept = select(self.columns, schema.names)
        return tuple(name for name in schema.names if name not in kept)


@final
class Drop(_Removal):
    """The removal of columns."""

    kind = "drop"

    def removes(self, schema: pa.Schema) -> tuple[str, ...]:
        return select(self.columns, schema.names)


def _different(columns: dict[str, str]) -> dict[str, str]:
    names = list(columns.values())
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two columns cannot both be called '{name}'")
    return columns


@final
class Rename(Operation):
    """New names for columns: `Rename({"old": "new"})`.

    A column that already has the new name is replaced.
    """

    kind = "rename"

    columns: Annotated[dict[str, str], Field(min_length=1), AfterValidator(_different)]

    def __init__(self, columns: Mapping[str, str] | None = None, **values: Any) -> None:
        given = {} if columns is None else {"columns": columns}
        super().__init__(**given, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        for name in self.columns:
            if name not in schema.names:
                raise DataError(
                    f"{self}: there is no column '{name}'; {nearest(name, schema.names)}"
                )
        return tuple(self.columns)

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        return {self.columns[name]: schema.field(name).type for name in self.reads(schema)}

    def removes(self, schema: pa.Schema) -> tuple[str, ...]:
        return self.reads(schema)

    def bind(self, schema: pa.Schema, state: State) -> Step:
        return lambda arrays, rows: {new: arrays[old] for old, new in self.columns.items()}

    def narrowed(self, schema: pa.Schema, wanted: Collection[str]) -> Operation | None:
        kept = {old: new for old, new in self.columns.items() if new in wanted}
        return self.model_copy(update={"columns": kept}) if kept else None


def _import_path(given: Any) -> Any:
    if not (isinstance(given, str) and re.fullmatch(r"[\w.]+:[\w.]+", given)):
        raise ValueError("give the import path of a function as a text: 'package.module:name'")
    return given


def _known_types(types: dict[str, str]) -> dict[str, str]:
    for name in types.values():
        arrow_type(name)
    return types


@final
class Custom(Operation):
    """Columns that a function of your own makes.

    `function` is its import path, "package.module:name". It is called with a dict of the Arrow
    arrays of `columns`, for a batch of rows, and returns a dict of arrays of the same length: the
    columns of `out`, which gives their types, such as "int64", "float32", "text", "list<int64>" (of
    any length) or "list<float32>[8]" (of length 8). The result for a row must not depend on other
    rows.
    """

    kind = "custom"
    runs_code = True

    function: Annotated[str, BeforeValidator(_import_path)]
    columns: Columns = Field(min_length=1)
    out: Annotated[dict[str, str], Field(min_length=1), AfterValidator(_known_types)]

    def __init__(self, function: str | None = None, **values: Any) -> None:
        given = {} if function is None else {"function": function}
        super().__init__(**given, **values)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        return select(self.columns, schema.names)

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        return {name: arrow_type(kind) for name, kind in self.out.items()}

    def bind(self, schema: pa.Schema, state: State) -> Step:
        function, names = self._imported(), self.reads(schema)
        types = self.writes(schema)

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            given = {name: arrays[name] for name in names}
            return self._checked(function(given), types, len(given[names[0]]))

        return step

    def _imported(self) -> Any:
        module, _, path = self.function.partition(":")
        try:
            found = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self}: function='{self.function}' cannot be imported: {error}"
            ) from error
        if not callable(found):
            raise ConfigError(f"{self}: function='{self.function}' is no function")
        return found

    def _checked(
        self, found: Any, types: Mapping[str, pa.DataType], rows: int
    ) -> dict[str, pa.Array]:
        """Return the results of the function; raise an error if they do not match `types`."""
        if not isinstance(found, Mapping) or found.keys() != types.keys():
            kind = f"a {type(found).__name__}"
            returned = quoted(found) if isinstance(found, Mapping) else kind
            raise DataError(f"{self.function} returned {returned}, not a dict of {quoted(types)}")
        columns = {}
        for name, kind in types.items():
            column = found[name]
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            if isinstance(column, pa.Array) and _alike(column.type, kind):
                column = column.cast(kind)
            else:
                is_array = isinstance(column, pa.Array)
                got = column.type if is_array else f"a {type(column).__name__}"
                raise DataError(
                    f"{self.function} returned {got} for '{name}', and out= says {self.out[name]}: "
                    f"return an Arrow array of type {kind}"
                )
            if len(column) != rows:
                raise DataError(
                    f"{self.function} returned {number_of(len(column), 'value')} of '{name}' for "
                    f"{number_of(rows, 'row')}; return one for each"
                )
            columns[name] = column
        return columns


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types hold the same values, with offsets of any size."""
    if one == other:
        return True
    lists = (is_list(kind) and not pa.types.is_fixed_size_list(kind) for kind in (one, other))
    if all(lists):
        return _alike(one.value_type, other.value_type)
    return one in _TEXTS and other in _TEXTS


_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a name such as `int64`, `list<int64>` or `list<float32>[8]`."""
    found = re.fullmatch(r"\s*(large_)?list<(.+)>\s*(?:\[(\d+)\])?\s*", name)
    if found is None:
        try:
            return pa.string() if name.strip() == "text" else pa.type_for_alias(name.strip())
        except ValueError:
            raise ValueError(
                f"there is no type '{name}'; give 'int64', 'float32', 'text', 'list<int64>' or "
                "'list<float32>[8]', say"
            ) from None
    item = arrow_type(found[2])
    if found[3] is not None:
        return pa.list_(item, int(found[3]))
    return pa.large_list(item) if found[1] else pa.list_(item)
