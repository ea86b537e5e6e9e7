"""For how many workers there is room."""

import pytest

from flambeau.clusters.ray.resources import left_by, places, shown


@pytest.mark.parametrize(
    ("bundle", "rooms", "count"),
    [
        ({"CPU": 1}, [{"CPU": 2}, {"CPU": 1.5}], 3),
        ({"CPU": 3}, [{"CPU": 2}, {"CPU": 2}], 0),
        ({"CPU": 0.1}, [{"CPU": 1}], 10),
        ({"CPU": 1, "GPU": 0.5}, [{"CPU": 8, "GPU": 1}, {"CPU": 8}], 2),
        ({"CPU": 1}, [], 0),
    ],
)
def test_a_worker_is_on_one_node(
    bundle: dict[str, float], rooms: list[dict[str, float]], count: int
) -> None:
    assert places(bundle, rooms) == count


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ({}, [{"CPU": 1}, {"CPU": 2}]),
        ({"CPU": 1}, [{"CPU": 0}, {"CPU": 2}]),
        ({"CPU": 2}, [{"CPU": 1}, {"CPU": 0}]),
        ({"GPU": 1}, [{"CPU": 1}, {"CPU": 2}]),
    ],
)
def test_a_trial_takes_its_own_resources_of_one_bundle(
    taken: dict[str, float], left: list[dict[str, float]]
) -> None:
    assert left_by(taken, [{"CPU": 1}, {"CPU": 2}]) == left


def test_resources_are_shown_with_their_numbers() -> None:
    assert shown({"CPU": 1, "GPU": 0.5, "memory": 7}) == "1 core, 0.5 GPUs"
    assert shown({}) == "0 cores"
