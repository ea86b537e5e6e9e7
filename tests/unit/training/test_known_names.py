from flambeau.config.known_names import LOSS_NAMES, METRIC_NAMES, RANKED_NAMES
from flambeau.training.losses import _NAMED
from flambeau.training.metrics import METRICS, RANKED


def test_the_names_known_without_torch_are_those_that_exist() -> None:
    assert sorted(LOSS_NAMES) == sorted(_NAMED)
    assert sorted(METRIC_NAMES) == sorted(METRICS)
    assert sorted(RANKED_NAMES) == sorted(RANKED)
