"""The fields of a model that have few values."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class SmallFields:
    """Positions `places` of small fields among a model's `fields`, and their numbers of values.

    `names` are used in messages; `columns` are the columns of all fields, if they are known.
    """

    fields: int
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """Positions of the remaining fields."""
        return tuple(sorted({*range(self.fields)} - {*self.places}))
