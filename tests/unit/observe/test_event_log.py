import json
from pathlib import Path

import numpy as np
import pytest

from flambeau.errors import RunDirectoryError
from flambeau.observe import Event, EventLog, read_events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "events.jsonl"


def write(path: Path, *events: Event) -> None:
    log = EventLog(path)
    for event in events:
        log.observe(event)
    log.close()


def test_events_are_read_back_as_they_were_written(path: Path) -> None:
    events = [
        Event("evaluation", 1.5, {"step": 3, "metrics": {"auc": 0.75}}),
        Event("log", 2.0, {"rank": 0, "stream": "stdout", "text": "caf\u00e9\nline"}),
    ]
    write(path, *events)
    assert list(read_events(path)) == events


def test_a_line_is_one_json_object_with_kind_time_and_fields(path: Path) -> None:
    write(path, Event("epoch_start", 12.25, {"epoch": 1}))
    assert json.loads(path.read_text()) == {"kind": "epoch_start", "time": 12.25, "epoch": 1}


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), np.float32("nan")])
def test_numbers_json_does_not_have_become_null(path: Path, number: float) -> None:
    write(path, Event("progress", 0.0, {"loss": number}))
    assert '"loss":null' in path.read_text()


def test_numpy_values_become_plain_numbers(path: Path) -> None:
    write(path, Event("scalars", 0.0, {"step": np.int64(7), "values": {"a": np.float32(0.5)}}))
    assert next(read_events(path)).fields == {"step": 7, "values": {"a": 0.5}}


def test_paths_become_text(path: Path) -> None:
    write(path, Event("checkpoint", 0.0, {"step": 1, "path": Path("runs/a")}))
    assert next(read_events(path)).fields["path"] == "runs/a"


def test_an_event_is_on_disk_before_the_log_is_closed(path: Path) -> None:
    log = EventLog(path)
    log.observe(Event("generation", 0.0, {"number": 1}))
    assert [event.kind for event in read_events(path)] == ["generation"]
    log.close()


def test_a_log_that_is_opened_again_goes_on(path: Path) -> None:
    write(path, Event("generation", 0.0, {"number": 1}))
    write(path, Event("generation", 1.0, {"number": 2}))
    assert [event.fields["number"] for event in read_events(path)] == [1, 2]


def test_a_torn_last_line_is_left_out(path: Path) -> None:
    write(path, Event("generation", 0.0, {"number": 1}))
    with path.open("a") as file:
        file.write('{"kind":"gener')
    assert [event.fields["number"] for event in read_events(path)] == [1]


def test_an_event_after_a_torn_line_is_not_lost(path: Path) -> None:
    write(path, Event("generation", 0.0, {"number": 1}))
    with path.open("a") as file:
        file.write('{"kind":"gener')
    write(path, Event("generation", 1.0, {"number": 2}))
    assert [event.fields["number"] for event in read_events(path)] == [1, 2]


@pytest.mark.parametrize("line", ["not json", '{"time": 1.0}', "[1, 2]"])
def test_a_line_that_is_not_an_event_is_named(path: Path, line: str) -> None:
    write(path, Event("generation", 0.0, {"number": 1}))
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RunDirectoryError, match=r"events\.jsonl, line 2 is not an event"):
        list(read_events(path))


def test_a_shared_log_keeps_the_line_that_another_process_is_writing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind": "epoch_')
    EventLog(path, shared=True).close()
    assert path.read_bytes() == b'{"kind": "epoch_'
