"""Operations that split texts, and extract parts of times."""

import functools
import re
import zoneinfo
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BeforeValidator, Field

from flambeau.config.settings import close_to
from flambeau.data.arrow_columns import is_text
from flambeau.errors import ConfigError, DataError
from flambeau.features.keys import plain_values
from flambeau.features.operation import (
    Arrays,
    ColumnOperation,
    Operation,
    State,
    Step,
    TrainingRows,
)
from flambeau.features.selection import Columns, select

Part = Literal[
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "weekday",
    "dayofyear",
    "week",
    "quarter",
    "is_weekend",
]
Unit = Literal["s", "ms", "us", "ns"]


@final
class SplitText(ColumnOperation):
    """Lists of the texts between separators, without surrounding white space.

    Empty items are left out, so an empty text becomes an empty list; a missing text becomes a
    missing list. With `max_items`, lists keep the first items only.
    """

    kind = "split_text"

    separator: str = Field(default=" ", min_length=1)
    max_items: int | None = Field(default=None, ge=1)

    def type_of(self, kind: pa.DataType) -> pa.DataType:
        _require_text(kind)
        return pa.large_list(pa.string())

    def converter(self, name: str, kind: pa.DataType, state: State) -> Callable[..., pa.Array]:
        return self._split

    def _split(self, column: pa.Array) -> pa.Array:
        texts = plain_values(column).cast(pa.string())
        lists = pc.split_pattern(texts, self.separator)
        items = pc.utf8_trim_whitespace(lists.flatten())
        kept = pc.not_equal(items, "").to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        ends = np.cumsum(lengths, dtype=np.int64)
        # The number of items kept before each one, and before the first one of its list.
        before = np.concatenate([[0], np.cumsum(kept)])
        if self.max_items is not None:
            rank = before[:-1] - np.repeat(before[ends - lengths], lengths)
            kept &= rank < self.max_items
            before = np.concatenate([[0], np.cumsum(kept)])
        offsets = np.concatenate([[0], before[ends]])
        mask = texts.is_null() if texts.null_count else None
        return pa.LargeListArray.from_arrays(
            pa.array(offsets, pa.int64()), items.filter(pa.array(kept)), mask=mask
        )


def _known_zone(name: str | None) -> str | None:
    if name is None or name == "UTC" or _OFFSET.fullmatch(name):
        return name
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        close = close_to(name, zoneinfo.available_timezones())
        hint = f"did you mean '{close}'?" if close else "give 'Europe/Paris' or '+02:00', say"
        raise ValueError(f"there is no such time zone; {hint}") from None
    return name


def _several(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


@final
class DateParts(Operation):
    """Int64 columns of parts of times, such as the hour and the weekday.

    Times are integers since 1970 in `unit`, timestamps, dates, or ISO texts such as
    `2024-05-31T13:00:00Z`; times without a time zone are in UTC. Parts are computed in UTC or in
    `timezone`, which does not apply to dates. Monday is weekday 0, and weeks are those of ISO 8601.
    Missing times and empty texts have null parts. Results are named after the parts, or
    `{column}_{part}` for several columns; `out` is another pattern, in which `{}` is the part, or a
    name for each part of each column.
    """

    kind = "date_parts"

    columns: Columns
    parts: Annotated[tuple[Part, ...], BeforeValidator(_several), Field(min_length=1)]
    out: Columns | None = None
    unit: Unit = "s"
    timezone: Annotated[str | None, AfterValidator(_known_zone)] = None

    def __init__(
        self,
        columns: str | Sequence[str] = (),
        parts: str | Sequence[str] | None = None,
        **values: Any,
    ) -> None:
        named = {} if parts is None else {"parts": parts}
        super().__init__(**{"columns": columns, **named, **values})

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def reads(self, schema: pa.Schema) -> tuple[str, ...]:
        return select(self.columns, schema.names)

    def writes(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        for name in self.reads(schema):
            kind = schema.field(name).type
            if _form(kind) is None:
                raise DataError(
                    f"{self}: column '{name}' holds {kind}; give integers, timestamps, dates or "
                    "ISO texts, or Cast it first"
                )
        outputs = self._outputs(schema)
        return {out: pa.int64() for names in outputs.values() for out in names}

    def _outputs(self, schema: pa.Schema) -> dict[str, tuple[str, ...]]:
        """Return the names of the results of each column, in the order of parts."""
        names, size = self.reads(schema), len(self.parts)
        given = self.out or ("{}" if len(names) == 1 else "{column}_{part}",)
        if len(given) == 1 and re.search(r"\{(part|column)?\}", given[0]):
            pattern = given[0].replace("{}", "{part}")
            given = tuple(
                pattern.replace("{part}", part).replace("{column}", name)
                for name in names
                for part in self.parts
            )
        if len(given) != size * len(names):
            raise ConfigError(
                f"{self}: out= has {len(given)} names for {size * len(names)} results; give one "
                "for each, or a pattern such as out='{column}_{part}'"
            )
        if len(set(given)) < len(given):
            raise ConfigError(
                f"{self}: out={', '.join(given)} gives results the same name; use a pattern with "
                "both, such as out='{column}_{part}', and each part once"
            )
        return {name: given[i * size : (i + 1) * size] for i, name in enumerate(names)}

    def narrowed(self, schema: pa.Schema, wanted: Collection[str]) -> Operation | None:
        outputs = self._outputs(schema)
        kept = {name: outs for name, outs in outputs.items() if not set(outs).isdisjoint(wanted)}
        if not kept:
            return None
        names = tuple(out for outs in kept.values() for out in outs)
        return self.model_copy(update={"columns": tuple(kept), "out": names})

    def bind(self, schema: pa.Schema, state: State) -> Step:
        outputs = self._outputs(schema)

        def step(arrays: Arrays, rows: TrainingRows | None) -> dict[str, pa.Array]:
            written = {}
            for name, outs in outputs.items():
                try:
                    times = self._local_times(plain_values(arrays[name]))
                except DataError as error:
                    raise DataError(f"column '{name}': {error}") from None
                for part, out in zip(self.parts, outs, strict=True):
                    written[out] = _PARTS[part](times).cast(pa.int64())
            return written

        return step

    def _local_times(self, column: pa.Array) -> pa.Array:
        """Return local times in the time zone, as timestamps in seconds without a time zone."""
        seconds = _seconds(column, self.unit)
        _require_between(seconds, _FIRST, _LAST, f"years 1 to 9999; is unit='{self.unit}' right?")
        if self.timezone is not None and _form(column.type) != "date":
            seconds = pc.add(seconds, _offsets(seconds, self.timezone))
        return seconds.cast(pa.timestamp("s"))


# Seconds since 1970 of the first and the last second of the years 1 to 9999, and 1840 to 2100.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_FIRST_RULES, _LAST_RULES = -4_102_444_800, 4_133_980_799
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_PARTS: dict[Part, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "weekday": pc.day_of_week,
    "dayofyear": pc.day_of_year,
    "week": pc.iso_week,
    "quarter": pc.quarter,
    "is_weekend": lambda times: pc.greater_equal(pc.day_of_week(times), 5),
}


def _offsets(seconds: pa.Array, zone: str) -> int | pa.Array:
    """Return the UTC offset of a time zone at each time, in seconds."""
    if zone == "UTC":
        return 0
    if (fixed := _OFFSET.fullmatch(zone)) is not None:
        ahead = int(fixed[2]) * 3600 + int(fixed[3]) * 60
        return -ahead if fixed[1] == "-" else ahead
    _require_between(
        seconds, _FIRST, _LAST_RULES, f"the years to 2100, for which the rules of {zone} are known"
    )
    starts, offsets = _changes(zone)
    times = seconds.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(offsets[np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)])


@functools.cache
def _changes(zone: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the starts (seconds since 1970) and values (seconds) of a time zone's UTC offsets.

    Arrow's own offsets are rounded to minutes, and wrong after 2037. There was no change before
    1840, and there are never two within three days.
    """
    known, epoch, step = zoneinfo.ZoneInfo(zone), datetime(1970, 1, 1, tzinfo=UTC), 3 * 86_400

    def offset_at(second: int) -> int:
        offset = (epoch + timedelta(seconds=second)).astimezone(known).utcoffset()
        assert offset is not None
        return round(offset.total_seconds())

    starts, offsets = [_FIRST_RULES], [offset_at(_FIRST_RULES)]
    for second in range(_FIRST_RULES, _LAST_RULES + step, step):
        if (found := offset_at(second)) != offsets[-1]:
            before, after = second - step, second
            while after - before > 1:
                middle = (before + after) // 2
                before, after = (before, middle) if offset_at(middle) == found else (middle, after)
            starts.append(after)
            offsets.append(found)
    return np.array(starts), np.array(offsets)


def _form(kind: pa.DataType) -> Literal["text", "date", "timestamp", "integer", "null"] | None:
    """Return the form in which a column holds times; None if it cannot."""
    types = pa.types
    if types.is_dictionary(kind):
        return _form(kind.value_type)
    if is_text(kind):
        return "text"
    if types.is_date(kind):
        return "date"
    if types.is_timestamp(kind):
        return "timestamp"
    if types.is_integer(kind):
        return "integer"
    return "null" if types.is_null(kind) else None


def _seconds(column: pa.Array, unit: Unit) -> pa.Array:
    """Return whole seconds since 1970, rounded down."""
    kind, form = column.type, _form(column.type)
    if form == "null":
        return column.cast(pa.int64())
    if form == "text":
        return _parsed(column)
    if pa.types.is_date32(kind):
        return pc.multiply(column.view(pa.int32()).cast(pa.int64()), 86_400)
    if form == "integer":
        numbers, each = column.cast(pa.int64()), _PER_SECOND[unit]
    else:
        numbers, each = column.view(pa.int64()), _PER_SECOND[getattr(kind, "unit", "ms")]
    if each == 1:
        return numbers
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    filled = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(filled // each, mask=missing)


_FRACTION = r"(:\d\d)[.,]\d+"
_ZONED = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


def _parsed(texts: pa.Array) -> pa.Array:
    """Return the seconds since 1970 of ISO texts; null for empty texts."""
    nothing = pa.scalar(None, pa.string())
    texts = pc.utf8_trim_whitespace(texts.cast(pa.string()))
    texts = pc.if_else(pc.equal(texts, ""), nothing, texts)
    texts = pc.replace_substring_regex(texts, _FRACTION, r"\1")
    zoned = pc.match_substring_regex(texts, _ZONED)
    try:
        plain = pc.if_else(zoned, nothing, texts).cast(pa.timestamp("s"))
        instants = pc.if_else(zoned, texts, nothing).cast(pa.timestamp("s", tz="UTC"))
    except pa.ArrowInvalid as error:
        found = re.search(r"'(.*)' as a scalar", str(error), re.DOTALL)
        text = repr(found[1]) if found else str(error)
        raise DataError(f"{text} is no time; give ISO texts such as 2024-05-31T13:00:00Z") from None
    return pc.coalesce(plain.view(pa.int64()), instants.view(pa.int64()))


def _require_between(seconds: pa.Array, first: int, last: int, allowed: str) -> None:
    bounds = pc.min_max(seconds).as_py()
    for found in (bounds["min"], bounds["max"]):
        if found is not None and not first <= found <= last:
            raise DataError(f"{found} seconds since 1970 is outside {allowed}")


def _require_text(kind: pa.DataType) -> None:
    """Raise a `TypeError` unless a column of this type holds texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (is_text(kind) or pa.types.is_null(kind)):
        raise TypeError("give texts, or Cast it first")
