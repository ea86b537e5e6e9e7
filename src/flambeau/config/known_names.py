"""Losses and metrics by name, known without torch so that a misspelling is found at once."""

import re
from typing import NamedTuple

LOSS_NAMES = ("bce", "bce_prob", "cross_entropy", "huber", "in_batch_softmax", "mae", "mse", "nll")

METRIC_NAMES = (
    "accuracy",
    "auc",
    "calibration",
    "f1",
    "gauc",
    "logloss",
    "mae",
    "mse",
    "normalized_entropy",
    "precision",
    "recall",
    "rmse",
    "top5",
)

#: Other names by which metrics are known; results have the name that was given.
METRIC_ALIASES = {
    "acc": "accuracy",
    "auroc": "auc",
    "bce": "logloss",
    "cross_entropy": "logloss",
    "f1_score": "f1",
    "log_loss": "logloss",
    "ne": "normalized_entropy",
    "nll": "logloss",
    "prec": "precision",
    "roc_auc": "auc",
    "top5_acc": "top5",
    "top5_accuracy": "top5",
}

#: Metrics of the first k of a ranking, whose names say k: "recall@10".
RANKED_NAMES = ("ndcg", "recall")

_RANKED = re.compile(rf"^(?P<name>{'|'.join(RANKED_NAMES)})@(?P<k>[1-9]\d*)$")


class RankedName(NamedTuple):
    """What the name of a ranked metric says."""

    name: str
    k: int


def ranked_name(metric: str) -> RankedName | None:
    """The parts of a name such as "recall@10"; None if it is not one."""
    match = _RANKED.match(metric)
    return None if match is None else RankedName(match["name"], int(match["k"]))


def is_metric(name: str) -> bool:
    """Return whether there is a metric of this name."""
    return METRIC_ALIASES.get(name, name) in METRIC_NAMES or ranked_name(name) is not None


def metric_choices() -> tuple[str, ...]:
    """The names to choose from, for messages."""
    return (*METRIC_NAMES, *(f"{name}@10" for name in RANKED_NAMES), *METRIC_ALIASES)
