"""Settings of a generated click log."""

from typing import Literal, Self

from pydantic import Field, model_validator

from flambeau.config import Settings

MOST_IDS = 100_000_000
MOST_DAYS = 1_000

Task = Literal["click", "conversion"]
Format = Literal["tsv", "parquet"]


class ClickLog(Settings):
    """Settings of a click log; equal settings give the same bytes.

    `ids` is the number of different ids that exist on any one day, over all `fields`.
    """

    rows: int = Field(1_000_000, ge=1)
    fields: int = Field(26, ge=1, le=1_000)
    dense: int = Field(13, ge=0, le=1_000)
    ids: int = Field(10_000_000, ge=1, le=MOST_IDS)
    days: int = Field(7, ge=1, le=MOST_DAYS)
    seed: int = Field(0, ge=0, lt=1 << 63)
    format: Format = "tsv"
    labels: tuple[Task, ...] = ("click",)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.labels not in (("click",), ("click", "conversion")):
            given = ",".join(self.labels)
            raise ValueError(f"labels={given}: use click, or click,conversion")
        if self.ids < self.fields:
            raise ValueError(f"ids={self.ids}: {self.fields} fields need an id each at least")
        if self.rows < self.days:
            raise ValueError(f"rows={self.rows}: {self.days} days need a row each at least")
        return self

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Names of the label columns in formats with named columns."""
        return ("label",) if len(self.labels) == 1 else self.labels

    def day_rows(self, day: int) -> range:
        """Return the row numbers of a day; the days differ by at most one row in size."""
        return range(self.rows * day // self.days, self.rows * (day + 1) // self.days)
