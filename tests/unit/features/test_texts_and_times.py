"""Items of texts and parts of times, against Python's own `split` and `datetime`."""

import random
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_checks import transformed

from flambeau.errors import ConfigError, DataError
from flambeau.features.operations.texts_and_times import DateParts, SplitText
from flambeau.features.pipeline import Pipeline

PARTS = ("year", "month", "day", "hour", "minute", "second", "weekday", "dayofyear", "week")
PARTS += ("quarter", "is_weekend")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = -62_135_596_800, 253_402_300_799
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

words = st.text(alphabet="ab| \t é\u2003日🔥", max_size=12)


@given(
    st.lists(st.none() | words, min_size=1, max_size=6),
    st.sampled_from([" ", "|", "||", "é"]),
    st.none() | st.integers(1, 3),
)
@settings(max_examples=12)
def test_texts_are_split_as_python_does(
    rows: list[str | None], separator: str, most: int | None
) -> None:
    operation = SplitText("a", separator=separator, max_items=most)
    found = transformed(operation, pa.table({"a": pa.array(rows, pa.string())}))
    assert found.schema.field("a").type == pa.large_list(pa.string())
    assert found["a"].to_pylist() == [
        None if text is None else [x.strip() for x in text.split(separator) if x.strip()][:most]
        for text in rows
    ]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_are_split_however_they_are_stored(kind: pa.DataType) -> None:
    rows = pa.array(["x y", "", None, " z "]).cast(kind)
    found = transformed(SplitText("a", out="items"), pa.table({"a": rows}))
    assert found["items"].to_pylist() == [["x", "y"], [], None, ["z"]]


def parts_of(time: datetime) -> tuple[int, ...]:
    """Return the parts of a time as Python's `datetime` gives them."""
    weekday = time.weekday()
    return (
        *(time.year, time.month, time.day, time.hour, time.minute, time.second, weekday),
        *(time.timetuple().tm_yday, time.isocalendar().week, (time.month + 2) // 3),
        int(weekday >= 5),
    )


def found_parts(operation: DateParts, column: pa.Array) -> list[tuple[int, ...]]:
    found = transformed(operation, pa.table({"t": column}))
    assert all(found.schema.field(part).type == pa.int64() for part in PARTS)
    return list(zip(*(found[part].to_pylist() for part in PARTS), strict=True))


seconds = st.sampled_from([0, -1, FIRST, LAST, 1 << 31, -(1 << 31)]) | st.integers(FIRST, LAST)
NOTHING = (None,) * len(PARTS)


@given(st.lists(st.none() | seconds, min_size=1, max_size=5))
@settings(max_examples=12)
def test_integers_are_seconds_since_1970(rows: list[int | None]) -> None:
    expected = [
        NOTHING if row is None else parts_of(EPOCH + timedelta(seconds=row)) for row in rows
    ]
    assert found_parts(DateParts("t", parts=PARTS), pa.array(rows, pa.int64())) == expected


@given(st.sampled_from(["ms", "us", "ns"]), st.data())
@settings(max_examples=12)
def test_other_units_are_rounded_down_to_seconds(unit: Any, data: Any) -> None:
    each = PER_SECOND[unit]
    low, high = max(FIRST * each, -(1 << 63)), min(LAST * each, (1 << 63) - 1)
    numbers = st.sampled_from([low, high, -1, 1]) | st.integers(low, high)
    rows = data.draw(st.lists(numbers, min_size=1, max_size=5))
    expected = [parts_of(EPOCH + timedelta(seconds=row // each)) for row in rows]
    assert found_parts(DateParts("t", parts=PARTS, unit=unit), pa.array(rows)) == expected
    stamps = pa.array(rows).cast(pa.timestamp(unit))
    assert found_parts(DateParts("t", parts=PARTS), stamps) == expected
    zoned = pa.array(rows).cast(pa.timestamp(unit, tz="Asia/Tokyo"))
    assert found_parts(DateParts("t", parts=PARTS), zoned) == expected


@given(st.lists(st.dates(), min_size=1, max_size=5))
@settings(max_examples=12)
def test_dates_have_no_time_zone(rows: list[date]) -> None:
    expected = [parts_of(datetime(row.year, row.month, row.day)) for row in rows]
    operation = DateParts("t", parts=PARTS, timezone="America/New_York")
    for kind in (pa.date32(), pa.date64()):
        assert found_parts(operation, pa.array(rows, kind)) == expected


@pytest.mark.parametrize("zone", ["Europe/Paris", "Africa/Monrovia", "Australia/Lord_Howe"])
def test_parts_are_those_in_a_time_zone(zone: str) -> None:
    ahead = timedelta(days=1)  # no local time is before the year 1
    low, high = FIRST + ahead // timedelta(seconds=1), 4_133_980_799
    draw = random.Random(0)
    changes = [-1_855_958_962, -1_855_958_961, 63_593_069, 63_593_070, 1_711_846_799, 2_232_746_400]
    rows = [low, high, *changes, *(draw.randint(-4_102_444_800, high) for _ in range(3000))]
    pipeline = Pipeline([DateParts("t", parts=PARTS, timezone=zone)]).fit({"t": [0]})
    found = pipeline.transform({"t": rows})
    expected = [
        parts_of((EPOCH + timedelta(seconds=row)).astimezone(ZoneInfo(zone))) for row in rows
    ]
    assert list(zip(*(found[part].to_pylist() for part in PARTS), strict=True)) == expected


def test_a_time_zone_may_be_an_offset() -> None:
    rows = pa.array([0, -1, 4_000_000_000, None])
    zone = timezone(-timedelta(hours=3, minutes=30))
    expected = [
        parts_of((EPOCH + timedelta(seconds=row)).astimezone(zone))
        for row in rows.drop_null().to_pylist()
    ]
    found = found_parts(DateParts("t", parts=PARTS, timezone="-03:30"), rows)
    assert found == [*expected, NOTHING]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", datetime(2024, 2, 29)),
        ("0001-01-01", datetime(1, 1, 1)),
        ("9999-12-31 23:59:59", datetime(9999, 12, 31, 23, 59, 59)),
        ("2024-02-29T13:05", datetime(2024, 2, 29, 13, 5)),
        (" 2024-02-29 13:05:59 ", datetime(2024, 2, 29, 13, 5, 59)),
        ("1969-12-31T23:59:59.999999999", datetime(1969, 12, 31, 23, 59, 59)),
        ("2024-02-29T13:05:59Z", datetime(2024, 2, 29, 13, 5, 59)),
        ("2024-02-29T13:05:59.5+02:00", datetime(2024, 2, 29, 11, 5, 59)),
        ("2024-02-29T13:05:59-0230", datetime(2024, 2, 29, 15, 35, 59)),
        ("2024-02-29T13:05:59-02", datetime(2024, 2, 29, 15, 5, 59)),
    ],
)
def test_iso_texts_are_times(text: str, expected: datetime) -> None:
    rows = pa.array([text, None, "", "2000-01-01", text], pa.string())
    found = found_parts(DateParts("t", parts=PARTS), rows)
    year_2000 = parts_of(datetime(2000, 1, 1))
    assert found == [parts_of(expected), NOTHING, NOTHING, year_2000, parts_of(expected)]


def test_results_are_named_by_part_and_by_column_if_there_are_several() -> None:
    rows = {"a": [0], "b": [0]}

    def names(columns: Any, **settings: Any) -> list[str]:
        found = transformed(DateParts(columns, parts=["hour", "day"], **settings), rows)
        return [name for name in found.schema.names if name not in rows]

    assert names("a") == ["hour", "day"]
    assert names("a", out="a_{}") == ["a_hour", "a_day"]
    assert names("a", out=["h", "d"]) == ["h", "d"]
    assert names(["a", "b"]) == ["a_hour", "a_day", "b_hour", "b_day"]
    assert names(["a", "b"], out="{part}_of_{column}")[2] == "hour_of_b"
    assert names("[ab]", out=["p", "q", "r", "s"]) == ["p", "q", "r", "s"]


def test_names_stay_if_only_some_columns_are_needed() -> None:
    pipeline = Pipeline([DateParts(["a", "b"], parts=["hour", "day"])]).fit({"a": [0], "b": [0]})
    bound = pipeline.bind(pa.schema({"b": pa.int64()}), needed=["b_day"])
    assert bound(pa.record_batch({"b": [86_400]}))["b_day"].to_pylist() == [2]


def test_columns_without_any_value_have_no_parts() -> None:
    table = pa.table({"t": pa.nulls(2)})
    assert found_parts(DateParts("t", parts=PARTS), table["t"].chunk(0)) == [NOTHING] * 2
    assert transformed(SplitText("t"), table)["t"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SplitText("a", separator=""), "separator='': String should have at least 1"),
        (lambda: SplitText("a", max_items=0), "max_items=0: Input should be greater than or equal"),
        (lambda: DateParts("a", parts=["hours"]), "did you mean 'hour'?"),
        (lambda: DateParts("a"), "'parts' is missing"),
        (lambda: DateParts("a", parts=[]), "parts=[]: Value should have at least 1 item"),
        (lambda: DateParts("a", parts="hour", unit="min"), "Input should be 's', 'ms', 'us' or"),
        (
            lambda: DateParts("a", parts="hour", timezone="Europe/Pari"),
            "timezone='Europe/Pari': there is no such time zone; did you mean 'Europe/Paris'?",
        ),
    ],
)
def test_wrong_settings_are_explained(make: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (SplitText("t"), "split_text: column 't' holds int64: give texts, or Cast it first"),
        (DateParts("x", parts="day"), "column 'x' holds double; give integers, timestamps"),
        (DateParts("t", parts="day"), "outside years 1 to 9999; is unit='s' right?"),
        (DateParts("far", parts="day", timezone="Asia/Tokyo"), "the years to 2100, for which"),
        (DateParts("u", parts="day"), "18446744073709551615 not in range"),
        (DateParts("s", parts="day"), "date_parts: column 's': 'noon' is no time; give ISO texts"),
        (
            DateParts(["t", "u"], parts="day", out="{}"),
            "gives results the same name; use a pattern",
        ),
        (DateParts("t", parts=["day", "hour"], out="x"), "out= has 1 names for 2 results"),
    ],
)
def test_wrong_columns_are_explained(operation: Any, message: str) -> None:
    rows = pa.table(
        {
            "t": [1_700_000_000_000],
            "far": [4_133_980_800],
            "u": pa.array([(1 << 64) - 1], pa.uint64()),
            "x": [1.5],
            "s": ["noon"],
        }
    )
    with pytest.raises((DataError, ConfigError)) as error:
        Pipeline([operation]).fit(rows).transform(rows)
    assert message in str(error.value)
