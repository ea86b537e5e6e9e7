import numpy as np

from flambeau.reports.points import BUCKETS, Points


def filled(count: int, spike: int) -> Points:
    points = Points(["loss", "lr"])
    for step in range(count):
        points.add(step / 2, step, 100.0 if step == spike else 1.0, float("nan"))
    return points


def test_few_points_stay_as_they_are() -> None:
    points = Points(["loss"])
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        points.add(step * 0.5, step, loss)
    found = points.thinned("loss")
    assert found.steps.tolist() == [0, 1, 2]
    assert found.elapsed.tolist() == [0, 0.5, 1.0]
    assert found.lows.tolist() == found.highs.tolist() == found.means.tolist() == [3.0, 1.0, 2.0]


def test_many_points_take_a_limited_number_of_buckets() -> None:
    found = filled(100_000, spike=-1).thinned("loss")
    assert BUCKETS / 2 < len(found) <= 2 * BUCKETS + 1


def test_a_spike_among_many_points_stays_at_its_place() -> None:
    found = filled(100_000, spike=70_001).thinned("loss")
    place = int(np.argmax(found.highs))
    assert found.highs[place] == 100.0
    assert abs(found.steps[place] - 70_001) <= 100_000 / BUCKETS
    assert (found.lows == 1.0).all()


def test_the_mean_of_all_points_is_kept() -> None:
    found = filled(70_000, spike=5).thinned("loss")
    assert found.means.max() > 1.0
    assert found.steps[-1] == 69_999


def test_numbers_that_are_not_finite_are_left_out() -> None:
    points = filled(1_000, spike=-1)
    assert len(points.thinned("lr")) == 0
    assert points.count == 1_000


def test_nothing_is_thinned_to_nothing() -> None:
    assert len(Points(["loss"]).thinned("loss")) == 0
