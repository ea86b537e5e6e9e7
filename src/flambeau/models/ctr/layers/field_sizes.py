"""The number of values of each field, and which fields have few."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.config.plural import number_of
from flambeau.embeddings.small_fields import SmallFields
from flambeau.errors import ModelError

#: `sizes=` of the models: number of values of each field, in the order of the fields; by name, as
#: in `Pipeline.sizes_`, or as a list.
FieldSizes = Mapping[str, int] | Sequence[int]


def small_fields(
    fields: int | None, sizes: FieldSizes | None, dense_below: int | None
) -> SmallFields | None:
    """Return the fields with fewer than `dense_below` values; None if there are none.

    Without `dense_below`, sizes are only checked: tables do not need them.
    """
    if sizes is None:
        if dense_below is not None:
            raise ModelError(
                f"dense_below={dense_below} needs sizes=, how many values each field has: the "
                "sizes_ of a fitted pipeline, or a list in the order of the fields"
            )
        return None
    names, counts = _checked(fields, sizes)
    if dense_below is None:
        return None
    if dense_below < 1:
        raise ModelError(f"dense_below={dense_below}: must be at least 1, or None for no field")
    places = tuple(place for place, count in enumerate(counts) if count < dense_below)
    if not places:
        return None
    return SmallFields(
        len(counts),
        places,
        tuple(counts[place] for place in places),
        tuple(names[place] for place in places),
        tuple(sizes) if isinstance(sizes, Mapping) else None,
    )


def _checked(fields: int | None, sizes: FieldSizes) -> tuple[list[str], list[int]]:
    given: Any = sizes
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise ModelError(
            f"sizes={given!r}: give the number of values of each field, as a list or by name"
        )
    if len(sizes) != fields:
        raise ModelError(
            f"sizes= is of {number_of(len(sizes), 'field')}, and the model has fields={fields}: "
            "give one size for each, in the order of the ids; of a pipeline that has more columns, "
            "sizes={name: pipeline.sizes_[name] for name in columns}"
        )
    if isinstance(sizes, Mapping):
        names = [repr(name) for name in sizes]
        values = list(sizes.values())
    else:
        names, values = [f"{number} of the ids" for number in range(len(sizes))], list(sizes)
    return names, [_count(name, value) for name, value in zip(names, values, strict=True)]


def _count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1 or isinstance(value, bool):
        raise ModelError(f"sizes=: field {name} has {value!r} values; give a number, at least 1")
    return count
