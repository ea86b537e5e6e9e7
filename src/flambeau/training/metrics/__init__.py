"""Metrics by name, exact over any number of workers."""

from collections.abc import Sequence

from flambeau.config.known_names import METRIC_ALIASES, metric_choices, ranked_name
from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.training.metrics.base import Metric, State
from flambeau.training.metrics.counts import F1, Accuracy, Precision, Recall, Top5
from flambeau.training.metrics.probability import Calibration, LogLoss, NormalizedEntropy
from flambeau.training.metrics.ranking import Auc, GroupedAuc
from flambeau.training.metrics.regression import Mae, Mse, Rmse
from flambeau.training.metrics.top import NdcgAt, RecallAt, TopMetric

__all__ = ["METRICS", "RANKED", "Metric", "State", "build_metrics", "higher_is_better"]

METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        *(Accuracy, Top5, Precision, Recall, F1),
        *(LogLoss, NormalizedEntropy, Calibration),
        *(Auc, GroupedAuc),
        *(Rmse, Mse, Mae),
    )
}

#: Metrics whose names end with a number: "recall@10".
RANKED: dict[str, type[TopMetric]] = {metric.prefix: metric for metric in (NdcgAt, RecallAt)}


def build_metrics(
    names: Sequence[str], *, loss_name: str | None, exact_rows: int
) -> dict[str, Metric]:
    """Build new metrics by name. `loss_name` (None: the user's own) defines what outputs mean."""
    return {name: _build(name, loss_name, exact_rows) for name in names}


def higher_is_better(name: str) -> bool:
    """Return whether a larger value of the metric (or of `"loss"`) is an improvement."""
    return name != "loss" and _known(name).higher_is_better


def _build(name: str, loss_name: str | None, exact_rows: int) -> Metric:
    ranked = ranked_name(name)
    if ranked is not None:
        return RANKED[ranked.name](ranked.k, loss_name=loss_name, exact_rows=exact_rows)
    return _known(name)(loss_name=loss_name, exact_rows=exact_rows)


def _known(name: str) -> type[Metric]:
    ranked = ranked_name(name)
    if ranked is not None:
        return RANKED[ranked.name]
    name = METRIC_ALIASES.get(name, name)
    if name not in METRICS:
        raise ConfigError(f"metrics: unknown metric '{name}'; {nearest(name, metric_choices())}")
    return METRICS[name]
