"""The choice of columns to summarize, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import pyarrow as pa

from flambeau.features.operation import Operation, State, schema_after
from flambeau.features.operations.categorify import Categorify
from flambeau.features.summaries.column_summary import ColumnSummarizer, Role

#: Approximate number of rows, over all subsets, that pictures and drift are computed from.
SAMPLED_ROWS = 100_000

#: Raw columns, or features.
Stage = Literal["raw", "features"]
#: A table of statistics, which may be large and in a file.
StoredTable = tuple[State, str]
STAGES: tuple[Stage, ...] = ("raw", "features")


@final
@dataclass(frozen=True)
class SummaryPlan:
    """The columns to summarize, and the fraction of the rows to sample.

    `raw` are all raw columns, `features` those that operations have made; features that are
    unchanged raw columns are summarized only once. `columns` are the names of all features.
    """

    raw: pa.Schema
    features: pa.Schema
    columns: tuple[str, ...]
    fraction: float
    #: The values and counts behind features that are ids of a vocabulary.
    vocabularies: Mapping[str, StoredTable]
    #: The values and counts of raw columns that have a vocabulary of their own.
    counted: Mapping[str, StoredTable]

    @classmethod
    def of(
        cls, operations: Sequence[Operation], states: Sequence[State], raw: pa.Schema, rows: int
    ) -> "SummaryPlan":
        """Return the plan for data with `rows` rows, and for its features."""
        schema, made = raw, set[str]()
        vocabularies: dict[str, StoredTable] = {}
        counted: dict[str, StoredTable] = {}
        for operation, state in zip(operations, states, strict=True):
            if isinstance(operation, Categorify) and not operation.shared:
                own = (name for name in operation.reads(schema) if name not in made)
                counted |= {name: (state, name) for name in own}
            written = operation.writes(schema).keys()
            made |= written
            kept = {name: table for name, table in vocabularies.items() if name not in written}
            tables = operation.vocabularies(schema).items()
            vocabularies = kept | {out: (state, name) for out, name in tables}
            schema = schema_after(operation, schema, state)
        features = pa.schema([field for field in schema if field.name in made])
        fraction = min(1.0, SAMPLED_ROWS / max(1, rows))
        return cls(raw, features, tuple(schema.names), fraction, vocabularies, counted)

    def kind(self, stage: Stage, name: str) -> pa.DataType:
        """Return the type of a column."""
        schema = self.raw if stage == "raw" else self.features
        return schema.field(name).type

    def summarizer(self, stage: Stage, name: str) -> ColumnSummarizer:
        """Return a summarizer of a column."""
        role: Role = "values"
        if stage == "raw" and name in self.counted:
            role = "counted"
        if stage == "features" and name in self.vocabularies:
            role = "ids"
        return ColumnSummarizer(self.kind(stage, name), role)
