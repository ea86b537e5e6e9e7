import pytest

from flambeau.errors import ConfigError
from flambeau.training.best import Best


def improvements(best: Best, *values: float) -> list[bool]:
    return [best.improves({best.metric: value}) for value in values]


def test_the_first_value_is_the_best_so_far() -> None:
    assert improvements(Best("loss"), 5.0) == [True]


def test_a_lower_loss_is_better() -> None:
    assert improvements(Best("loss"), 2.0, 1.0, 1.5, 0.5) == [True, True, False, True]


def test_a_higher_auc_is_better_also_of_one_task() -> None:
    for name in ("auc", "click/auc"):
        assert improvements(Best(name), 0.5, 0.6, 0.55) == [True, True, False]


def test_the_direction_can_be_given() -> None:
    assert improvements(Best("auc", mode="min"), 0.5, 0.6) == [True, False]
    assert improvements(Best("own", mode="max"), 0.5, 0.6) == [True, True]


def test_an_equal_value_is_no_improvement() -> None:
    assert improvements(Best("loss"), 1.0, 1.0) == [True, False]


def test_less_than_min_delta_is_no_improvement() -> None:
    assert improvements(Best("loss", min_delta=0.5), 2.0, 1.75, 1.25) == [True, False, True]


def test_stale_counts_since_the_last_improvement() -> None:
    best = Best("loss")
    improvements(best, 1.0, 2.0, 2.0)
    assert best.stale == 2
    improvements(best, 0.5)
    assert best.stale == 0


def test_a_value_that_is_no_number_never_improves() -> None:
    best = Best("loss")
    assert improvements(best, float("nan"), 3.0, float("nan")) == [False, True, False]
    assert best.value == 3.0


def test_a_metric_that_is_not_evaluated_is_named_with_those_that_are() -> None:
    with pytest.raises(
        ConfigError,
        match="no metric 'auc' to watch; available metrics: logloss, loss",
    ):
        Best("auc").improves({"loss": 1.0, "logloss": 2.0})


def test_an_unknown_metric_is_found_at_once() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        Best("acuracy")


def test_it_goes_on_from_a_checkpoint() -> None:
    best, again = Best("loss"), Best("loss")
    improvements(best, 1.0, 2.0)
    again.load(best.dump())
    assert (again.value, again.stale) == (1.0, 1)


def test_calibration_has_no_better_direction_of_its_own() -> None:
    with pytest.raises(ConfigError, match="best at 1"):
        Best("calibration")
    assert Best("calibration", "min").improves({"calibration": 0.9})
