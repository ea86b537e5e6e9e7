"""Stages of some work: what is reported of them, and what is shown."""

import io
from typing import Any

import pytest
from rich.console import Console

from flambeau.observe import Event, Observer, stage_display
from flambeau.observe.stages import StageRecord, Stages


class Seen(Observer):
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        pass


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rows_are_reported_a_few_times_a_second() -> None:
    seen, clock = Seen(), Clock()
    stages = Stages(seen, 2, clock=clock)
    with stages.stage("read", 1000, 4, number=1) as stage:
        for _ in range(10):
            clock.now += 0.125
            stage.add_rows(50)
    kinds = [event.kind for event in seen.events]
    assert kinds[0] == "stage_start"
    assert kinds[-1] == "stage_end"
    assert kinds.count("stage") == 5
    last = seen.events[-2].fields
    assert last["rows_per_second"] == pytest.approx(400)
    assert last["seconds_left"] == pytest.approx(1.25)
    end = seen.events[-1].fields
    assert (end["rows"], end["stage"], end["stages"]) == (500, "read", 2)
    assert end["seconds"] == pytest.approx(1.25)


def test_the_time_left_of_a_stage_without_rows_follows_from_its_pieces() -> None:
    seen, clock = Seen(), Clock()
    with Stages(seen, 1, clock=clock).stage("merge", 0, 4, number=1) as stage:
        clock.now += 3
        stage.piece_done()
    assert seen.events[1].fields["seconds_left"] == pytest.approx(9)
    assert seen.events[1].fields["rows_per_second"] is None


def test_memory_is_the_sum_of_what_each_process_had_at_most() -> None:
    with Stages(Seen(), 1).stage("read", 10, 4, number=1) as stage:
        for process, memory in (("a", 5), ("b", 7), ("a", 9), ("b", 3)):
            stage.note_memory(process, memory)
    assert stage.record.peak_bytes == 16


def test_short_work_is_not_reported_where_it_should_be_quiet() -> None:
    seen, clock = Seen(), Clock()
    stages = Stages(seen, 2, quiet_seconds=2.0, clock=clock)
    with stages.stage("read", 10, 1, number=1) as stage:
        clock.now += 1
        stage.add_rows(10)
    assert not seen.events
    with stages.stage("merge", 10, 1, number=2) as stage:
        clock.now += 1.5
        stage.add_rows(10)
    assert [event.kind for event in seen.events] == ["stage_start", "stage", "stage_end"]


def test_a_stage_that_fails_has_no_end() -> None:
    seen = Seen()
    with pytest.raises(OSError, match="full"), Stages(seen, 1).stage("read", 1, 1, number=1):
        raise OSError("full")
    assert [event.kind for event in seen.events] == ["stage_start"]


def test_rows_a_second_need_rows_and_time() -> None:
    assert StageRecord("read", 10, 2.0, 0).rows_per_second == 5
    assert StageRecord("merge", 0, 2.0, 0).rows_per_second is None


PLACE = {"stage": "write features", "number": 3, "stages": 3}
PROGRESS = {
    **PLACE,
    "rows": 1200,
    "rows_total": 5000,
    "pieces": 1,
    "pieces_total": 4,
    "rows_per_second": 400.0,
    "seconds_left": 9.5,
}
END = {**PLACE, "rows": 5000, "seconds": 12.5, "rows_per_second": 400.0, "peak_bytes": 3 << 28}
PREPARED = {
    "out": "/data/out",
    "rows": {"train": 4000, "valid": 0, "test": 1000},
    "seconds": 83.0,
    "rows_per_second": 60.2,
    "peak_bytes": 3 << 30,
    "sizes": {"user": 1200, "item": 7},
}


def shown(*events: Event, mode: Any = "lines", **console: Any) -> list[str]:
    file = io.StringIO()
    observer = stage_display(mode, 5.0, Console(file=file, width=100, **console))
    for event in events:
        observer.observe(event)
    observer.close()
    return file.getvalue().splitlines()


START = Event("stage_start", 0.0, {**PLACE, "rows_total": 5000, "pieces_total": 4})


def test_lines_are_shown_at_intervals_and_at_the_end() -> None:
    events = [Event("stage", time, PROGRESS) for time in (1.0, 5.0, 6.0)]
    assert shown(START, *events, Event("stage_end", 12.5, END)) == [
        "3/3 write features  1,200/5,000 rows  400 rows/s  9.5 s left",
        "3/3 write features: 5,000 rows in 12.5 s, 400 rows/s, 768 MB",
    ]


def test_a_stage_without_rows_is_shown_by_its_parts() -> None:
    none = {**PROGRESS, "rows_total": 0, "rows_per_second": None, "seconds_left": 3725.0}
    (line,) = shown(Event("stage", 5.0, none))
    assert line == "3/3 write features  1/4 parts  1:02:05 left"


def test_the_beginning_and_the_summary() -> None:
    begun = {"out": "/data/out", "rows": 5000, "resumed": True}
    assert shown(Event("preparation", 0.0, begun), Event("prepared", 1.0, PREPARED)) == [
        "preparing 5,000 rows, /data/out",
        "resuming what was interrupted",
        "prepared 5,000 rows in 1:23, 60 rows/s, 3.0 GB: train 4,000, test 1,000",
        "vocabularies: user 1,200, item 7",
        "files: /data/out",
    ]


def test_a_terminal_shows_a_bar() -> None:
    lines = shown(
        START,
        Event("stage", 1.0, PROGRESS),
        Event("stage_end", 12.5, END),
        mode="bar",
        force_terminal=True,
    )
    text = "\n".join(lines)
    assert "━" in text
    assert "3/3 write features: 5,000 rows in 12.5 s" in text


def test_nothing_is_shown_but_what_processes_print() -> None:
    log = Event("log", 0.0, {"rank": 1, "role": "preparer", "text": "hello"})
    assert shown(START, log, Event("stage_end", 1.0, END), mode="none") == ["[preparer 1] hello"]


def test_lost_processes_are_named() -> None:
    lost = {"rank": 1, "role": "preparer", "reason": "it was killed", "cause": "died"}
    (line,) = shown(Event("worker_lost", 0.0, lost))
    assert line == "preparer 1 lost: it was killed"
