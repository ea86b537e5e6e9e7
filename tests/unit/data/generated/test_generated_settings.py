"""What a click log may be."""

import pytest

from flambeau.data.generated import ClickLog
from flambeau.errors import ConfigError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": 0}, "rows=0: "),
        ({"fields": 0}, "fields=0: "),
        ({"dense": -1}, "dense=-1: "),
        ({"days": 0}, "days=0: "),
        ({"seed": -1}, "seed=-1: "),
        ({"ids": 25}, "ids=25: 26 fields need an id each at least"),
        ({"ids": 100_000_001}, "ids=100000001: "),
        ({"rows": 6}, "rows=6: 7 days need a row each at least"),
        ({"format": "csv"}, "format='csv': "),
        ({"labels": ("conversion",)}, "labels=conversion: use click, or click,conversion"),
        ({"labels": ("conversion", "click")}, "use click, or click,conversion"),
        ({"labels": ()}, "use click, or click,conversion"),
        ({"labels": ("clicks",)}, "did you mean 'click'"),
    ],
)
def test_a_wrong_setting_is_explained(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClickLog(**wrong)
    assert message in str(caught.value)


@pytest.mark.parametrize(("rows", "days"), [(10, 3), (7, 7), (1_000, 7), (5, 1)])
def test_days_share_the_rows_evenly_and_in_order(rows: int, days: int) -> None:
    parts = [ClickLog(rows=rows, days=days).day_rows(day) for day in range(days)]
    assert [row for part in parts for row in part] == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_labels_have_the_names_of_their_tasks_where_there_are_two() -> None:
    assert ClickLog().label_columns == ("label",)
    assert ClickLog(labels=("click", "conversion")).label_columns == ("click", "conversion")
