import pytest

from flambeau.config.known_names import LOSS_NAMES, METRIC_ALIASES, METRIC_NAMES, RANKED_NAMES
from flambeau.errors import ConfigError
from flambeau.training.losses import _NAMED
from flambeau.training.metrics import METRICS, RANKED, build_metrics, higher_is_better


def test_the_names_known_without_torch_are_those_that_exist() -> None:
    assert sorted(LOSS_NAMES) == sorted(_NAMED)
    assert sorted(METRIC_NAMES) == sorted(METRICS)
    assert sorted(RANKED_NAMES) == sorted(RANKED)


def test_a_metric_by_another_name_is_the_same_and_keeps_the_name_that_was_given() -> None:
    built = build_metrics(list(METRIC_ALIASES), loss_name="bce", exact_rows=10)
    assert {name: metric.name for name, metric in built.items()} == METRIC_ALIASES
    assert higher_is_better("acc")
    assert not higher_is_better("nll")


def test_other_names_are_among_those_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean 'roc_auc'"):
        build_metrics(["roc_auk"], loss_name="bce", exact_rows=10)
