"""Warnings about the statistics of a column, the most important first."""

from collections.abc import Iterator
from typing import Any

from flambeau.reports.drawing import percent

TRAIN = "train"
MODERATE, STRONG = 0.1, 0.25
_MANY_MISSING = 0.5
_MANY_UNSEEN, _MORE_UNSEEN = 0.5, 0.1

Values = dict[str, Any]
_PLACES = {
    "valid": "from train to valid",
    "test": "from train to test",
    "first_to_last": "from the first to the last fifth of the training rows",
}


def warnings_of(column: Values, split_by: bool = False) -> list[Values]:
    """Return the warnings for a column; drift is expected in columns that rows are split by."""
    train = column["subsets"].get(TRAIN)
    if train is None or not train["rows"]:
        return []
    if train["missing"] == train["rows"]:
        return [_warning("all missing", "no row to train on has a value")]
    found = [*_constant(train), *_unseen(column), *_missing(train), *_infinite(column)]
    return found if split_by else [*found, *_drift(column)]


def _warning(kind: str, text: str) -> Values:
    return {"kind": kind, "text": text}


def _constant(train: Values) -> Iterator[Values]:
    complete = not train["missing"] and not train.get("missing_items")
    if complete and train.get("distinct") == 1 and not train["distinct_error"]:
        yield _warning("constant", "all rows to train on have the same value")


def _missing(train: Values) -> Iterator[Values]:
    share = train["missing"] / train["rows"]
    if share >= _MANY_MISSING:
        yield _warning("missing", f"{percent(share)} of the rows to train on have no value")


def _infinite(column: Values) -> Iterator[Values]:
    for name, subset in column["subsets"].items():
        if count := subset.get("infinite"):
            plural = "" if count == 1 else "s"
            yield _warning("infinite", f"{count:,} infinite number{plural} in {name}")


def _unseen(column: Values) -> Iterator[Values]:
    """Warn if many ids are 0 in training, or clearly more are 0 in another subset."""
    if "vocabulary" not in column:
        return
    known = unseen_share(column["subsets"][TRAIN])
    for name, subset in column["subsets"].items():
        share = unseen_share(subset)
        if name == TRAIN and share >= _MANY_UNSEEN:
            text = f"{percent(share)} of train are 0: rare or missing values"
            yield _warning("unseen", text)
        elif name != TRAIN and share >= known + _MORE_UNSEEN:
            text = f"{percent(share)} of {name} are 0 (new, rare or missing values)"
            yield _warning("unseen", f"{text}, {percent(known)} of train")


def unseen_share(subset: Values) -> float:
    """Return the share of the values that are not in the vocabulary."""
    values = subset.get("items", subset["rows"])
    return float(subset["unseen"] / values) if values else 0.0


def _drift(column: Values) -> Iterator[Values]:
    for name, drift in column["drift"].items():
        if drift["index"] >= MODERATE and drift["certain"]:
            strength = "strong" if drift["index"] >= STRONG else "moderate"
            text = f"{strength} drift {_PLACES[name]} (index {drift['index']:.2f})"
            yield _warning("drift", text)
