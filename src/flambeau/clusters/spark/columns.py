"""Columns of Spark in the form in which its Python workers should receive them."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType


def for_arrow(name: str, kind: DataType) -> Column:
    """Return the column of this name and type, in a type that Arrow has."""
    column = F.col(f"`{name}`")
    # Before Spark 4, vectors need not, and cannot, be unwrapped.
    if kind.typeName() == "vectorudt" and hasattr(F, "unwrap_udt"):
        return _unwrapped(column).alias(name)
    return column


def _unwrapped(vector: Column) -> Column:
    """Return a vector as the struct that Spark stores, with empty lists in place of null ones.

    After each row, Spark's Arrow writer iterates over all null lists at the end of a batch, which
    makes dense vectors slow, as their indices are null.
    """
    stored = F.unwrap_udt(vector)
    members = {name: stored[name] for name in ("type", "size", "indices", "values")}
    members["indices"] = F.coalesce(members["indices"], F.array().cast("array<int>"))
    return F.when(
        vector.isNotNull(), F.struct(*[member.alias(name) for name, member in members.items()])
    )
