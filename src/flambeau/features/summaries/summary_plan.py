"""Which columns are summarized, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import pyarrow as pa

from flambeau.features.operation import Operation, State, schema_after
from flambeau.features.operations.categorify import Categorify
from flambeau.features.summaries.column_summary import ColumnSummarizer, Role

#: Rows of all subsets together that pictures and drift are made of, about.
SAMPLED_ROWS = 100_000

#: Raw columns, or features.
Stage = Literal["raw", "features"]
#: A table of statistics, which may be large and in a file.
StoredTable = tuple[State, str]
STAGES: tuple[Stage, ...] = ("raw", "features")


@final
@dataclass(frozen=True)
class SummaryPlan:
    """Which columns are summarized, and the fraction of the rows that is sampled.

    `raw` are all raw columns, `features` those that operations have made; features that are raw
    columns as they were read are summarized only once. `columns` are the names of all features.
    """

    raw: pa.Schema
    features: pa.Schema
    columns: tuple[str, ...]
    fraction: float
    #: The values and counts behind features that are numbers of a vocabulary.
    vocabularies: Mapping[str, StoredTable]
    #: The values and counts of raw columns that have a vocabulary of their own.
    counted: Mapping[str, StoredTable]

    @classmethod
    def of(
        cls, operations: Sequence[Operation], states: Sequence[State], raw: pa.Schema, rows: int
    ) -> "SummaryPlan":
        """Return what is summarized of data with some rows and of its features."""
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
        """Return what gathers the summary of a column."""
        role: Role = "values"
        if stage == "raw" and name in self.counted:
            role = "counted"
        if stage == "features" and name in self.vocabularies:
            role = "ids"
        return ColumnSummarizer(self.kind(stage, name), role)
