"""Statistics of a column as plain values, for a readable file."""

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import pyarrow as pa

from flambeau.features.keys import is_list, item_type
from flambeau.features.splits import SUBSETS
from flambeau.features.summaries.column_summary import Array, ColumnSummary, kind_of
from flambeau.features.summaries.distinct_count import RELATIVE_ERROR, estimate
from flambeau.features.summaries.drift import Drift, drift_between
from flambeau.features.summaries.histogram import QUANTILES, bounds_for, quantiles_of, shares_in
from flambeau.features.summaries.vocabulary_head import VocabularyHead

TRAIN = SUBSETS[0]
#: Number of frequent values to list.
TOP = 20
#: Drift is also computed between the first and the last of the training rows: this fraction each.
_ENDS = 0.2
_MOST_CHARACTERS = 100

Values = dict[str, Any]


@final
class ColumnStatistics:
    """The statistics of a column in each subset of the rows.

    `vocabulary` has the values that ids in the column stand for; `counts` is the vocabulary of the
    column itself, perhaps without rare values.
    """

    def __init__(
        self,
        kind: pa.DataType,
        subsets: Mapping[str, ColumnSummary],
        vocabulary: VocabularyHead | None = None,
        counts: VocabularyHead | None = None,
    ) -> None:
        self._type, self._item = kind, item_type(kind)
        self._kind = kind_of(kind)
        self._subsets = {name: subsets[name] for name in SUBSETS if name in subsets}
        self._vocabulary, self._counts = vocabulary, counts
        self._samples = {
            name: _masked(summary.sample, self._item) for name, summary in self._subsets.items()
        }

    def values(self) -> Values:
        """Return the statistics of the column."""
        found: Values = {"type": str(self._type), "kind": self._kind}
        if self._vocabulary is not None:
            found["kind"] = "vocabulary"
            found["vocabulary"] = self._vocabulary.size
        found["subsets"] = {name: self._subset(name) for name in self._subsets}
        if self._kind in ("number", "time") and self._vocabulary is None:
            found |= self._histogram()
        found["drift"] = self._drift()
        return found

    def _subset(self, name: str) -> Values:
        """Return the statistics of the rows of a subset."""
        summary = self._subsets[name]
        found: Values = {"rows": summary.rows}
        if is_list(self._type):
            found |= {"missing": summary.nulls, "items": summary.values}
            found["missing_items"] = summary.null_items + summary.nan
        else:
            found["missing"] = summary.nulls + summary.nan
        if self._kind == "other":
            return found
        found |= self._distinct(summary)
        if self._vocabulary is not None:
            found |= self._ids(summary)
            return found | self._all_ids(summary) if name == TRAIN else found
        if self._counts is not None:
            return found | self._from_counts(summary) if name == TRAIN else found
        if self._kind in ("number", "boolean") and summary.finite:
            found |= self._moments(summary)
        if self._kind == "time" and summary.finite:
            found["min"], found["max"] = self._named(np.array([summary.low, summary.high]))
        if self._kind in ("number", "time"):
            found |= self._quantiles(name)
        return found | self._top(summary)

    def _distinct(self, summary: ColumnSummary) -> Values:
        if self._vocabulary is not None:
            if int(summary.low_ids.sum()) == summary.values - summary.null_items:
                return _exactly(int(np.count_nonzero(summary.low_ids)))
            return {}  # those of the raw column are estimated
        if self._counts is None and summary.frequent.is_complete:
            return _exactly(len(summary.frequent.keys))
        return {
            "distinct": estimate(summary.registers),
            "distinct_error": round(RELATIVE_ERROR, 4),
        }

    def _ids(self, summary: ColumnSummary) -> Values:
        """Return the statistics of ids of a vocabulary."""
        assert self._vocabulary is not None
        counts = summary.low_ids[1:]
        order = np.argsort(-counts, kind="stable")[:TOP]
        order = order[counts[order] > 0]
        values = self._vocabulary.first["value"].take(pa.array(order))
        rows = zip(order.tolist(), _plain_list(values), counts[order].tolist(), strict=True)
        top = [{"id": place + 1, "value": value, "count": count} for place, value, count in rows]
        return {"unseen": int(summary.low_ids[0]), "top": top}

    def _all_ids(self, summary: ColumnSummary) -> Values:
        """Return the number of distinct ids, if the column has all of the vocabulary."""
        assert self._vocabulary is not None
        unseen = int(summary.low_ids[0])
        if self._vocabulary.total + unseen != summary.values - summary.null_items:
            return {}  # it is shared by several columns
        return _exactly(self._vocabulary.size + (unseen > 0))

    def _from_counts(self, summary: ColumnSummary) -> Values:
        """Return the exact counts of frequent values and, if known, of distinct values."""
        assert self._counts is not None
        first = self._counts.first.slice(0, TOP)
        values, counts = _plain_list(first["value"]), first["count"].to_pylist()
        pairs = zip(values, counts, strict=True)
        top = [{"value": value, "count": count} for value, count in pairs]
        whole = self._counts.total == summary.values - summary.null_items
        return {"top": top, "top_low_by": 0, **(_exactly(self._counts.size) if whole else {})}

    def _moments(self, summary: ColumnSummary) -> Values:
        found: Values = {"infinite": summary.infinite} if summary.infinite else {}
        variance = _finite(summary.squares / summary.finite)
        return found | {
            "min": summary.low,
            "max": summary.high,
            "mean": _finite(summary.mean),
            "std": None if variance is None else math.sqrt(variance),
            "zeros": summary.zeros,
        }

    def _quantiles(self, name: str) -> Values:
        """Return quantiles of the sample; exact if it has all rows."""
        present = np.sort(self._samples[name].compressed())
        if not len(present):
            return {}
        named = self._named(quantiles_of(present))
        return {"quantiles": dict(zip(map(str, QUANTILES), named, strict=True))}

    def _top(self, summary: ColumnSummary) -> Values:
        """Return the most frequent of the values with counts above the error."""
        frequent = summary.frequent
        places = [place for place in frequent.first(TOP) if frequent.counts[place] > frequent.slack]
        if frequent.texts is None:
            values = self._named(_numbers(frequent.keys[places], self._item))
        else:
            values = _plain_list(frequent.texts.take(pa.array(places, pa.int64())))
        rows = zip(values, frequent.counts[places].tolist(), strict=True)
        top = [{"value": value, "count": count} for value, count in rows]
        return {"top": top, "top_low_by": frequent.slack}

    def _named(self, numbers: Array) -> list[Any]:
        """Return numbers of the column in readable form."""
        if self._kind == "time":
            return _times(numbers, self._item)
        if self._kind == "boolean":
            return [bool(number) for number in numbers]
        return [_json_number(number) for number in numbers.tolist()]

    def _histogram(self) -> Values:
        """Return the shares of the sample's finite numbers in intervals."""
        finite = {name: _only_finite(sample) for name, sample in self._samples.items()}
        # Rows of other subsets may be later than all training rows, so bounds include their times.
        chosen = [each for name, each in finite.items() if name == TRAIN or self._kind == "time"]
        if not any(map(len, chosen)):
            return {}
        basis = np.concatenate(chosen)
        bounds, scale = bounds_for(basis)
        shares = {name: shares_in(numbers, bounds) for name, numbers in finite.items()}
        found: Values = {"scale": scale, "bounds": bounds, "shares": shares}
        if self._kind == "time":
            whole = np.clip(bounds, *_limits(self._item)).astype(np.int64)
            found["bounds"] = _times(whole, self._item)
        return {"histogram": found}

    def _drift(self) -> Values:
        """Return the drift from the training rows to others, and within them."""
        if TRAIN not in self._samples or self._kind == "other" or self._counts is not None:
            return {}
        train = self._samples[TRAIN]
        groups = {name: (train, sample) for name, sample in self._samples.items() if name != TRAIN}
        end = int(len(train) * _ENDS)
        groups["first_to_last"] = (train[:end], train[len(train) - end :])
        ordered = self._kind != "text"
        found = {name: drift_between(*pair, ordered) for name, pair in groups.items()}
        return {name: _drift(drift) for name, drift in found.items() if drift is not None}


def _drift(drift: Drift) -> Values:
    return {
        "index": round(drift.index, 4),
        "chance": round(drift.chance, 4),
        "certain": drift.is_certain,
    }


def _exactly(count: int) -> Values:
    return {"distinct": count, "distinct_error": 0}


def _masked(sample: pa.Array, item: pa.DataType) -> Any:
    missing = sample.is_null().to_numpy(zero_copy_only=False)
    keys = sample.fill_null(0).to_numpy(zero_copy_only=False)
    return np.ma.masked_array(_numbers(keys, item), missing)


def _numbers(keys: Array, item: pa.DataType) -> Array:
    """Return the numbers that keys stand for, if they are bits of numbers."""
    if pa.types.is_floating(item):
        return keys.view(np.float64)
    return keys.view(np.uint64) if pa.types.is_uint64(item) else keys


def _only_finite(sample: Any) -> Array:
    present: Array = sample.compressed()
    return present[np.isfinite(present)]


def _limits(item: pa.DataType) -> tuple[int, int]:
    found = np.iinfo(np.int32 if item.bit_width == 32 else np.int64)
    return int(found.min), int(found.max)


def _times(numbers: Array, item: pa.DataType) -> list[Any]:
    """Return times as texts, and durations as numbers; times with a time zone are in UTC."""
    if pa.types.is_duration(item):
        return [int(number) for number in numbers]
    kind = pa.timestamp(item.unit) if pa.types.is_timestamp(item) else item
    whole = numbers.astype(np.int32 if item.bit_width == 32 else np.int64)
    texts: list[Any] = pa.array(whole).view(kind).cast(pa.string()).to_pylist()
    return texts


def _plain_list(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    return [_plain(value) for value in values.to_pylist()]


def _plain(value: Any) -> Any:
    """Return a value as JSON supports it; long texts are truncated."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        long = len(value) > _MOST_CHARACTERS
        return value[: _MOST_CHARACTERS - 1] + "…" if long else value
    if isinstance(value, bool | int | float) or value is None:
        return _json_number(value)
    return str(value)


def _json_number(value: Any) -> Any:
    """Return a number, or a text if JSON has no such number."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
