import pytest

from flambeau.reports.axes import exact_scale, number_scale, tick_text, time_scale


def texts(scale: object) -> list[str]:
    return [text for _, text in scale.ticks]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.3, 1.7, ["0", "0.5", "1", "1.5", "2"]),
        (0.66, 0.79, ["0.65", "0.7", "0.75", "0.8"]),
        (-1.0, 1.0, ["-1", "-0.5", "0", "0.5", "1"]),
        (0.0, 0.001, ["0", "0.0005", "0.001"]),
        (1e-5, 4e-5, ["0", "1e-5", "2e-5", "3e-5", "4e-5"]),
        (2000.0, 14_000.0, ["0", "5k", "10k", "15k"]),
        (5.0, 5.0, ["0", "2", "4", "6", "8"]),
        (0.0, 0.0, ["0", "0.5", "1"]),
    ],
)
def test_ticks_are_round_and_no_longer_than_needed(
    low: float, high: float, expected: list[str]
) -> None:
    assert texts(number_scale(low, high, 100, 0)) == expected


def test_a_scale_holds_all_its_numbers() -> None:
    scale = number_scale(0.66, 0.79, 100, 0)
    assert scale.low <= 0.66 < 0.79 <= scale.high
    assert scale(scale.low) == 100
    assert scale(scale.high) == 0


def test_wide_ranges_are_logarithmic_where_they_may_be() -> None:
    assert texts(number_scale(0.01, 50.0, 100, 0, may_be_log=True)) == [
        "0.01",
        "0.1",
        "1",
        "10",
        "100",
    ]
    assert not number_scale(0.01, 50.0, 100, 0).log
    assert not number_scale(0.0, 50.0, 100, 0, may_be_log=True).log
    assert number_scale(0.01, 100.0, 100, 0, may_be_log=True)(1.0) == pytest.approx(50)


@pytest.mark.parametrize(
    ("seconds", "unit", "last"),
    [(45, "s", "40"), (600, "min", "10"), (10_000, "h", "2"), (1_000_000, "days", "10")],
)
def test_times_have_the_unit_that_suits(seconds: float, unit: str, last: str) -> None:
    scale = time_scale(seconds, 0, 100)
    assert (scale.unit, texts(scale)[-1]) == (unit, last)
    assert scale(seconds) == 100


def test_steps_end_where_the_run_does() -> None:
    scale = exact_scale(0.0, 17_400.0, 0, 100)
    assert texts(scale) == ["0", "5k", "10k", "15k"]
    assert scale(17_400.0) == 100


def test_all_ticks_of_an_axis_have_the_same_unit() -> None:
    assert tick_text(500_000.0, 500_000.0, 1_500_000.0) == "0.5M"
