"""Summaries of all columns in a part of the rows, by subset, and their files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa

from flambeau.features.statistics.kernels import uniform_of_rows
from flambeau.features.summaries.column_summary import ColumnSummarizer, ColumnSummary
from flambeau.features.summaries.frequent_keys import FrequentKeys
from flambeau.features.summaries.summary_plan import Stage, SummaryPlan

_SEED = 0x5A3B1E

#: The key of a summary: the subset, stage and name of its column.
Key = tuple[str, Stage, str]

_INTEGERS = pa.list_(pa.int64())
_PLAIN = {
    "rows": pa.int64(),
    "nulls": pa.int64(),
    "values": pa.int64(),
    "null_items": pa.int64(),
    "finite": pa.int64(),
    "nan": pa.int64(),
    "infinite": pa.int64(),
    "zeros": pa.int64(),
    "mean": pa.float64(),
    "squares": pa.float64(),
}
_SCHEMA = pa.schema(
    {
        "subset": pa.string(),
        "stage": pa.string(),
        "column": pa.string(),
        **_PLAIN,
        "bounds": pa.string(),
        "registers": pa.binary(),
        "keys": _INTEGERS,
        "counts": _INTEGERS,
        "texts": pa.list_(pa.large_binary()),
        "slack": pa.int64(),
        "low_ids": _INTEGERS,
        "sample": _INTEGERS,
    }
)


@final
class PartSummary:
    """A collector of the summaries of the columns of a part."""

    def __init__(self, plan: SummaryPlan, part: int) -> None:
        self._plan, self._part = plan, part
        self._found: dict[Key, ColumnSummarizer] = {}
        self._rows: dict[str, int] = {}

    def add(self, subset: str, raw: pa.RecordBatch, features: pa.RecordBatch) -> None:
        """Add rows of a subset, with their features."""
        sampled = self._sampled(subset, raw.num_rows)
        batches: tuple[tuple[Stage, pa.Schema, pa.RecordBatch], ...] = (
            ("raw", self._plan.raw, raw),
            ("features", self._plan.features, features),
        )
        for stage, schema, batch in batches:
            for name in schema.names:
                key = (subset, stage, name)
                if key not in self._found:
                    self._found[key] = self._plan.summarizer(stage, name)
                self._found[key].add(batch.column(name), sampled)

    def _sampled(self, subset: str, rows: int) -> pa.Array:
        first = self._rows.get(subset, 0)
        self._rows[subset] = first + rows
        drawn = uniform_of_rows(_SEED, self._part, first, rows) < self._plan.fraction
        return pa.array(np.flatnonzero(drawn))

    def write(self, path: Path) -> None:
        """Write all summaries to a file."""
        found = {key: summarizer.found() for key, summarizer in self._found.items()}
        table = _table(found)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, _SCHEMA, options=options) as writer,
        ):
            writer.write_table(table)


def read_summaries(path: Path) -> Iterator[tuple[Key, ColumnSummary]]:
    """Return the summaries in a file."""
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    for number in range(len(table)):
        yield _summary({name: table[name][number] for name in table.column_names})


def _table(found: Mapping[Key, ColumnSummary]) -> pa.Table:
    summaries = list(found.values())
    frequent = [each.frequent for each in summaries]
    texts = [pa.array([], pa.large_binary()) if f.texts is None else f.texts for f in frequent]
    values = {
        "subset": [subset for subset, _, _ in found],
        "stage": [stage for _, stage, _ in found],
        "column": [column for _, _, column in found],
        **{name: [getattr(each, name) for each in summaries] for name in _PLAIN},
        "bounds": [json.dumps([each.low, each.high]) for each in summaries],
        "registers": [each.registers.tobytes() for each in summaries],
        "keys": _lists([pa.array(each.keys) for each in frequent], pa.int64()),
        "counts": _lists([pa.array(each.counts) for each in frequent], pa.int64()),
        "texts": _lists(texts, pa.large_binary()),
        "slack": [each.slack for each in frequent],
        "low_ids": _lists([pa.array(each.low_ids) for each in summaries], pa.int64()),
        "sample": _lists([each.sample for each in summaries], pa.int64()),
    }
    return pa.table(values, _SCHEMA)


def _lists(arrays: Sequence[pa.Array], item: pa.DataType) -> pa.Array:
    """Return arrays as the lists of one column."""
    bounds = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
    items = pa.concat_arrays([pa.array([], item), *arrays])
    return pa.ListArray.from_arrays(pa.array(bounds), items)


def _summary(row: Mapping[str, pa.Scalar]) -> tuple[Key, ColumnSummary]:
    low, high = json.loads(row["bounds"].as_py())
    keys, counts, low_ids = (
        row[name].values.to_numpy(zero_copy_only=False) for name in ("keys", "counts", "low_ids")
    )
    texts = row["texts"].values if len(row["texts"].values) else None
    summary = ColumnSummary(
        **{name: row[name].as_py() for name in _PLAIN},
        low=low,
        high=high,
        registers=np.frombuffer(row["registers"].as_py(), np.uint8),
        frequent=FrequentKeys(keys, counts, texts, row["slack"].as_py()),
        low_ids=low_ids,
        sample=row["sample"].values,
    )
    return (row["subset"].as_py(), row["stage"].as_py(), row["column"].as_py()), summary
