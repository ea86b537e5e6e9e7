"""Assignment of a DataFrame's columns to the parameters of forward()."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from pyspark.sql import Column
from pyspark.sql.types import DataType, FractionalType, StructType

from flambeau.clusters.spark.columns import for_arrow
from flambeau.errors import DataError
from flambeau.inference.export_description import Parameter
from flambeau.spark.params import ModelParams


@final
@dataclass(frozen=True)
class Inputs:
    """Inputs of a model: `binding` is `inputs=` of `flambeau.fit`, `columns` all that it reads."""

    binding: Any
    columns: tuple[str, ...]

    def expressions(self, schema: StructType) -> list[Column]:
        """Return the columns, converted to types that Arrow has."""
        return [for_arrow(name, _type_of(schema, name)) for name in self.columns]


def find_inputs(
    params: ModelParams,
    schema: StructType,
    forward: Sequence[Parameter],
    crosses: Mapping[str, Sequence[str]],
) -> Inputs:
    """Return the inputs of a model with these parameters from a schema, as the params define.

    `crosses` are columns that are made from others.
    """
    binding = _binding(params, schema, forward, crosses)
    if binding is None:
        every = any(each.batch for each in forward)
        wanted = {each.name for each in forward}
        names = [name for name in schema.names if every or name in wanted]
        missing = [each.name for each in forward if each.required and each.name not in names]
        if missing and not every and not crosses:
            raise DataError(
                f"forward() needs '{missing[0]}', and the DataFrame has neither such a column nor "
                f"'{params.getOrDefault(params.featuresCol)}': set featuresCol or inputCols; it "
                f"has {', '.join(schema.names)}"
            )
    else:
        groups = binding.values() if isinstance(binding, dict) else binding
        names = [name for group in groups for name in _several(group)]
    names = [member for name in names for member in crosses.get(name, [name])]
    for name in names:
        _type_of(schema, name)
    return Inputs(binding, tuple(dict.fromkeys(names)))


def _binding(
    params: ModelParams,
    schema: StructType,
    forward: Sequence[Parameter],
    crosses: Mapping[str, Sequence[str]],
) -> Any:
    given = params.getOrDefault(params.inputCols)
    features = params.getOrDefault(params.featuresCol)
    if given is None and features not in schema.names and not params.isSet(params.featuresCol):
        return None  # columns go to the parameters with the same names
    given = _several(features if given is None else given)
    if isinstance(given, dict) or len(given) > 1:
        return given
    if given[0] in crosses:
        return {_first(forward).name: given[0]}
    kind, first = _type_of(schema, given[0]), _first(forward)
    # A single number becomes a row of one; vectors, arrays and ids are unchanged.
    stacks = isinstance(kind, FractionalType) or first.kind.startswith("VAR_")
    return given if stacks else {first.name: given[0]}


def _first(forward: Sequence[Parameter]) -> Parameter:
    """Return the parameter for the features."""
    for parameter in forward:
        if not parameter.batch:
            return parameter
    raise DataError(
        "forward() takes a whole batch, and no features: leave featuresCol and inputCols unset"
    )


def _several(group: Any) -> Any:
    return [group] if isinstance(group, str) else group


def _type_of(schema: StructType, name: str) -> DataType:
    if name not in schema.names:
        raise DataError(f"there is no column '{name}'; the DataFrame has {', '.join(schema.names)}")
    return schema[name].dataType
