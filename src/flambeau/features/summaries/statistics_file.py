"""The file of statistics of a prepared folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from flambeau.checkpoint.durable import write_atomically
from flambeau.errors import DataError
from flambeau.features.splits import SUBSETS
from flambeau.features.summaries.column_statistics import ColumnStatistics
from flambeau.features.summaries.column_summary import ColumnSummary
from flambeau.features.summaries.column_warnings import warnings_of
from flambeau.features.summaries.part_summary import Key, read_summaries
from flambeau.features.summaries.summary_plan import STAGES, StoredTable, SummaryPlan
from flambeau.features.summaries.vocabulary_head import VocabularyHead

STATISTICS = "statistics.json"
VERSION = 1


def write_statistics(path: Path, values: Mapping[str, Any]) -> None:
    """Write statistics as JSON."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def read_statistics(folder: Path) -> dict[str, Any]:
    """Return the statistics of a prepared folder."""
    path = folder / STATISTICS
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{folder} has no {STATISTICS}: it holds no prepared features, or they were prepared "
            "by an earlier version; prepare them again in a new folder"
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if values.get("version") != VERSION:
        raise DataError(f"{path} has version {values.get('version')}; {VERSION} is known")
    return values


def merge_summaries(paths: Iterable[Path]) -> dict[Key, ColumnSummary]:
    """Return the summaries of all parts, whose files are in the order of the parts."""
    found: dict[Key, ColumnSummary] = {}
    samples: dict[Key, list[pa.Array]] = {}
    for path in paths:
        for key, summary in read_summaries(path):
            found[key] = found.get(key, ColumnSummary()).merge(summary)
            samples.setdefault(key, []).append(summary.sample)
    return {key: found[key].with_sample(pa.concat_arrays(samples[key])) for key in found}


def statistics_of(
    plan: SummaryPlan,
    summaries: Mapping[Key, ColumnSummary],
    rows: Mapping[str, int],
    *,
    split_by: Sequence[str] = (),
    read_with: Sequence[str] = (),
) -> dict[str, Any]:
    """Return statistics of all columns as plain values.

    Rows are split by the raw columns `split_by`. `read_with` are operations that the reader did, so
    that raw columns are their results.
    """
    columns: dict[str, dict[str, Any]] = {}
    for stage in STAGES:
        schema = plan.raw if stage == "raw" else plan.features
        columns[stage] = {}
        for name, kind in zip(schema.names, schema.types, strict=True):
            subsets = {
                subset: summaries[subset, stage, name]
                for subset in SUBSETS
                if (subset, stage, name) in summaries
            }
            numbers = _head(plan.vocabularies.get(name) if stage == "features" else None)
            counts = _head(plan.counted.get(name) if stage == "raw" else None)
            values = ColumnStatistics(kind, subsets, numbers, counts).values()
            values["warnings"] = warnings_of(values, stage == "raw" and name in split_by)
            columns[stage][name] = values
    return {
        "version": VERSION,
        "rows": dict(rows),
        "sampled_fraction": plan.fraction,
        "read_with": list(read_with),
        "columns": list(plan.columns),
        **columns,
    }


def _head(table: StoredTable | None) -> VocabularyHead | None:
    return None if table is None else VocabularyHead.stored(*table)
