"""The fields of a world, and the rows that are drawn from it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.data.generated import ClickLog
from flambeau.data.generated.drawing import MISSING_NUMBER, DrawnRows, draw
from flambeau.data.generated.probabilities import calibrate
from flambeau.data.generated.world import (
    MISSING_DENSE,
    MISSING_IDS,
    World,
    cardinalities,
    groups,
    make_world,
)

COUNT = 20_000


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(ClickLog(ids=20_000))


@pytest.fixture(scope="module")
def rows(world: World) -> DrawnRows:
    return draw(world, 0, 0, COUNT)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 1_000), st.integers(0, 100_000_000))
def test_the_fields_have_as_many_ids_as_asked(fields: int, more: int) -> None:
    sizes = cardinalities(fields, fields + more)
    assert sizes.sum() == fields + more
    assert sizes.min() >= 1


def test_sizes_go_from_a_handful_to_a_large_part() -> None:
    sizes = cardinalities(26, 10_000_000)
    assert sizes.min() == 4
    assert sizes.max() > 3_000_000


@pytest.mark.parametrize("fields", [1, 2, 8, 26, 40])
def test_fields_interact_in_groups_of_at_most_three(fields: int) -> None:
    group = groups(cardinalities(fields, 20_000))
    members = np.bincount(group[group >= 0])
    assert members.min() == members.max() == min(3, fields)


def test_no_two_ids_of_a_field_have_the_same_code() -> None:
    world = make_world(ClickLog(fields=1, ids=2_000, dense=0))
    rows = draw(world, 0, 0, 100_000)
    assert 1_800 < len(np.unique(rows.codes)) <= 2_000


def test_ids_follow_zipfs_law(rows: DrawnRows, world: World) -> None:
    largest = int(world.cardinality.argmax())
    codes = rows.codes[:, largest][rows.present[:, largest]]
    counts = np.sort(np.unique(codes, return_counts=True)[1])[::-1]
    ranks = np.arange(1, 101)
    slope, _ = np.polyfit(np.log(ranks), np.log(counts[:100]), 1)
    assert slope == pytest.approx(-1.2, abs=0.1)


def test_values_are_missing_as_often_as_meant(rows: DrawnRows) -> None:
    ids = [MISSING_IDS[f % len(MISSING_IDS)] for f in range(26)]
    dense = [MISSING_DENSE[j % len(MISSING_DENSE)] for j in range(13)]
    np.testing.assert_allclose(1 - rows.present.mean(axis=0), ids, atol=0.015)
    np.testing.assert_allclose((rows.numbers == MISSING_NUMBER).mean(axis=0), dense, atol=0.015)


def test_only_the_second_number_is_negative(rows: DrawnRows) -> None:
    lowest = np.where(rows.numbers == MISSING_NUMBER, 0, rows.numbers).min(axis=0)
    assert lowest.tolist() == [0, -2, *[0] * 11]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**12), st.integers(1, 50))
def test_any_part_can_be_drawn_alone(first: int, count: int) -> None:
    world = make_world(ClickLog(ids=1_000, fields=5, dense=2))
    together, last = draw(world, 3, first, count), draw(world, 3, first + count - 1, 1)
    for name in ("codes", "present", "numbers", "parts", "chances"):
        np.testing.assert_array_equal(getattr(together, name)[-1:], getattr(last, name))


def test_another_seed_gives_other_rows_and_other_effects() -> None:
    one, two = (make_world(ClickLog(seed=seed, ids=1_000)) for seed in (0, 1))
    first, second = draw(one, 0, 0, 100), draw(two, 0, 0, 100)
    assert not np.array_equal(first.codes, second.codes)
    assert not np.array_equal(first.parts, second.parts)


def test_a_day_changes_the_effects_of_the_same_ids(world: World, rows: DrawnRows) -> None:
    later = draw(world, 6, 0, COUNT)
    kept = (rows.codes == later.codes).all(axis=1)
    assert 0.1 < kept.mean() < 0.95
    click = calibrate(world).click
    before, after = click(rows.parts[kept]), click(later.parts[kept])
    assert 0.02 < np.abs(before - after).mean() < 0.2
    assert np.corrcoef(before, after)[0, 1] > 0.9


def test_a_few_ids_of_large_fields_are_new_each_day(world: World, rows: DrawnRows) -> None:
    tomorrow = draw(world, 1, 0, COUNT)
    changed = (rows.codes != tomorrow.codes).mean(axis=0)
    assert (changed[~world.renewed] == 0).all()
    assert 0 < changed[world.renewed].mean() < 0.1


@pytest.mark.parametrize("fields", [1, 3, 26])
@pytest.mark.parametrize("dense", [0, 13])
def test_a_quarter_of_the_rows_is_clicked_in_any_world(fields: int, dense: int) -> None:
    world = make_world(ClickLog(fields=fields, dense=dense, ids=5_000))
    click = calibrate(world).click(draw(world, 0, 0, COUNT).parts)
    assert click.mean() == pytest.approx(0.25, abs=0.01)


def test_conversions_are_likelier_where_clicks_are(world: World, rows: DrawnRows) -> None:
    probabilities = calibrate(world)
    click, after = probabilities.click(rows.parts), probabilities.conversion(rows.parts)
    assert 0.3 < np.corrcoef(click, after)[0, 1] < 0.9
    assert np.average(after, weights=click) == pytest.approx(0.2, abs=0.01)
