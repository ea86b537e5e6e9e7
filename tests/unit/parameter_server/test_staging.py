"""The open round of a shard: who is in it, and what the others are told."""

import numpy as np
import pytest

from flambeau.parameter_server.gradient import Gradient
from flambeau.parameter_server.staging import Staging, Standing


def dense(*numbers: float) -> Gradient:
    return Gradient(dense=np.array(numbers))


def staged(*weights: float, clip_value: float | None = None) -> Staging:
    """Round 4 with the gradients 10, 20, ... of workers 0, 1, ..."""
    staging = Staging(4, clip_value)
    for worker, weight in enumerate(weights):
        staging.stage(worker, 4, weight, dense(10.0 * (worker + 1)))
    return staging


def test_a_gradient_of_the_open_round_waits() -> None:
    assert Staging(4, None).stage(0, 4, 1.0, dense(1.0)) == Standing(None, new=True)


def test_a_gradient_that_comes_again_is_not_new_and_counts_once() -> None:
    staging = staged(1.0, 1.0)
    assert staging.stage(0, 4, 1.0, dense(99.0)) == Standing(None, new=False)
    total = staging.close([0, 1], 1.0, apply=True)
    assert total is not None
    assert total.dense == [15.0]


def test_a_round_gives_the_members_weighted_mean_times_the_scale() -> None:
    total = staged(1.0, 3.0).close([0, 1], 0.5, apply=True)
    assert total is not None
    assert total.dense == [0.5 * (10 + 3 * 20) / 4]


def test_gradients_of_others_are_left_out_and_late() -> None:
    staging = staged(1.0, 1.0, 1.0)
    total = staging.close([0, 2], 1.0, apply=True)
    assert total is not None
    assert total.dense == [20.0]
    assert [staging.outcome(worker, 4) for worker in range(3)] == ["applied", "late", "applied"]


def test_a_round_that_is_not_applied_is_skipped_for_its_members() -> None:
    staging = staged(1.0, 1.0)
    assert staging.close([0], 1.0, apply=False) is None
    assert [staging.outcome(worker, 4) for worker in range(2)] == ["skipped", "late"]


def test_the_next_round_begins_with_nothing_of_the_one_before() -> None:
    staging = staged(1.0, 1.0)
    staging.squares([0, 1])
    staging.close([0], 1.0, apply=True)
    staging.stage(0, 5, 1.0, dense(1.0))
    total = staging.close([0], 1.0, apply=True)
    assert total is not None
    assert (staging.round, total.dense) == (6, [1.0])


@pytest.mark.parametrize(("apply", "outcome"), [(True, "applied"), (False, "skipped")])
def test_a_gradient_that_comes_again_after_its_round_hears_what_became_of_it(
    apply: bool, outcome: str
) -> None:
    staging = staged(1.0)
    staging.close([0], 1.0, apply=apply)
    assert staging.stage(0, 4, 1.0, dense(1.0)) == Standing(outcome)


def test_a_gradient_of_a_round_that_is_over_is_late() -> None:
    staging = staged(1.0)
    staging.close([0], 1.0, apply=True)
    assert staging.stage(1, 4, 1.0, dense(1.0)) == Standing("late")
    assert staging.outcome(1, 4) == "late"


def test_squares_are_those_of_the_clamped_mean_which_is_then_applied() -> None:
    staging = staged(1.0, 1.0, clip_value=3.0)
    assert staging.squares([0, 1]) == 9.0
    total = staging.close([0, 1], 0.5, apply=True)
    assert total is not None
    assert total.dense == [1.5]
