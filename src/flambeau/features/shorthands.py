"""The operations that `hash=` and `crosses=` of a job stand for."""

import pyarrow as pa

from flambeau.data.arrow_columns import items_are_text
from flambeau.data.raw_columns import Shorthand
from flambeau.features.bound_pipeline import BoundPipeline
from flambeau.features.operation import Operation
from flambeau.features.operations.hashing import Cross, Hash


def expand(shorthand: Shorthand, schema: pa.Schema) -> BoundPipeline:
    """Return the operations of a shorthand, bound to rows with these columns."""
    operations = operations_of(shorthand, schema)
    names = [name for name in schema.names if name not in shorthand.unused]
    needed = dict.fromkeys([*names, *shorthand.crosses])
    return BoundPipeline(operations, [{}] * len(operations), schema, list(needed))


def operations_of(shorthand: Shorthand, schema: pa.Schema) -> list[Operation]:
    """Return a `Hash` per shared salt, one for columns with their own, and a `Cross` per cross."""
    found: dict[str | None, list[str]] = {}
    for name, salt in shorthand.salts.items():
        if name in schema.names and items_are_text(schema.field(name).type):
            found.setdefault(None if salt == name else salt, []).append(name)
    hashes: list[Operation] = [
        Hash(columns=tuple(names), salt=salt) for salt, names in found.items()
    ]
    return hashes + [
        Cross(columns=tuple(parts), out=name) for name, parts in shorthand.crosses.items()
    ]
