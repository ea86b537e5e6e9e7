"""Which fields of a model have few values."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class SmallFields:
    """Some of a model's `fields`: where they are, and how many values each of them has.

    `names` are what messages call them; `columns` are the columns of all fields, if they are known.
    """

    fields: int
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """Where the remaining fields are."""
        return tuple(sorted({*range(self.fields)} - {*self.places}))
