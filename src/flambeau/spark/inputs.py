"""Which columns of a DataFrame meet which parameter of forward(), and in which form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, FractionalType, StructType

from flambeau.errors import DataError
from flambeau.inference.description import Parameter
from flambeau.spark.params import ModelParams

_BAGS = "array<struct<id:bigint,value:float>>"
_VECTOR = "f struct<type:tinyint,size:int,indices:array<int>,values:array<double>>"


@final
@dataclass(frozen=True)
class Forward:
    """What is known of a model's forward(); `jagged` parameters take sparse rows as they are."""

    parameters: tuple[Parameter, ...]
    jagged: tuple[str, ...]
    dtype: str

    @property
    def first(self) -> Parameter:
        """The parameter for the features."""
        for parameter in self.parameters:
            if not parameter.batch:
                return parameter
        raise DataError("forward() takes a whole batch: name its columns with inputCols")


@final
@dataclass(frozen=True)
class Inputs:
    """`binding` is what `flambeau.fit` calls inputs=; `columns` are all that it reads."""

    binding: Any
    columns: tuple[str, ...]
    jagged: frozenset[str]
    dtype: str

    def expressions(self, schema: StructType, others: Iterable[str] = ()) -> list[Column]:
        """The columns, and `others`, as the model reads them: vectors as arrays, or as bags."""
        names = dict.fromkeys([*self.columns, *others])
        return [self._expression(name, _type_of(schema, name)) for name in names]

    def _expression(self, name: str, kind: DataType) -> Column:
        column = F.col(f"`{name}`")
        if not isinstance(kind, VectorUDT):
            return column
        if name in self.jagged:
            return _bags(column).alias(name)
        kept = "float64" if self.dtype == "float64" else "float32"
        return vector_to_array(column, kept).alias(name)


def find_inputs(params: ModelParams, schema: StructType, forward: Forward) -> Inputs:
    """How the columns of this schema meet the model, by the params."""
    binding = _binding(params, schema, forward)
    if binding is None:
        names = tuple(each.name for each in forward.parameters if each.name in schema.names)
        if any(each.batch for each in forward.parameters):
            names = tuple(schema.names)
        jagged = frozenset(forward.jagged)
    elif isinstance(binding, dict):
        names = tuple(name for group in binding.values() for name in _several(group))
        jagged = frozenset(
            name for key in forward.jagged for name in _several(binding.get(key, []))
        )
    else:
        names = tuple(binding)
        takes_bags = forward.first.name in forward.jagged
        jagged = frozenset(names if takes_bags else ())
    for name in names:
        _type_of(schema, name)
    return Inputs(binding, names, jagged, forward.dtype)


def _binding(params: ModelParams, schema: StructType, forward: Forward) -> Any:
    given = params.getOrDefault(params.inputCols)
    if given is not None:
        return _several(given) if isinstance(given, str) else given
    features = params.getOrDefault(params.featuresCol)
    if features not in schema.names and not params.isSet(params.featuresCol):
        return None  # columns go to the parameters that have their names
    kind = _type_of(schema, features)
    if isinstance(kind, FractionalType) or forward.first.kind.startswith("VAR_"):
        return [features]
    return {forward.first.name: features}


def _several(group: Any) -> list[str]:
    return [group] if isinstance(group, str) else list(group)


def _type_of(schema: StructType, name: str) -> DataType:
    if name not in schema.names:
        raise DataError(f"there is no column '{name}'; the DataFrame has {', '.join(schema.names)}")
    return schema[name].dataType


def _bags(column: Column) -> Column:
    """A vector as ids with values; of a sparse one only what is there."""
    if hasattr(F, "unwrap_udt"):
        vector = F.unwrap_udt(column)
    else:  # Spark 3.5 has no other way to look inside
        vector = F.from_json(F.to_json(F.struct(column.alias("f"))), _VECTOR)["f"]
    every = F.sequence(F.lit(0), F.size(vector["values"]) - 1)
    ids = F.when(vector["type"] == 0, vector["indices"]).otherwise(every)
    return F.arrays_zip(ids, vector["values"]).cast(_BAGS)


def schema_of(frame: DataFrame) -> StructType:
    """The frame's schema."""
    return frame.schema
