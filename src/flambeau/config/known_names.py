"""Names of losses and metrics, available without torch so that typos are found immediately."""

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

#: Aliases of metrics; results have the name that the user has given.
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

#: Metrics of the first k items of a ranking; k is part of the name: "recall@10".
RANKED_NAMES = ("ndcg", "recall")

_RANKED = re.compile(rf"^(?P<name>{'|'.join(RANKED_NAMES)})@(?P<k>[1-9]\d*)$")


class RankedName(NamedTuple):
    """Parts of the name of a ranked metric."""

    name: str
    k: int


def ranked_name(metric: str) -> RankedName | None:
    """Return the parts of a name such as "recall@10", or None for any other name."""
    match = _RANKED.match(metric)
    return None if match is None else RankedName(match["name"], int(match["k"]))


def is_metric(name: str) -> bool:
    """Return whether a metric of this name exists."""
    return METRIC_ALIASES.get(name, name) in METRIC_NAMES or ranked_name(name) is not None


def metric_choices() -> tuple[str, ...]:
    """Return all names of metrics, for error messages."""
    return (*METRIC_NAMES, *(f"{name}@10" for name in RANKED_NAMES), *METRIC_ALIASES)
