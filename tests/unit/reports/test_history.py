import json
from pathlib import Path

import pytest
from made_run import JOB_START, append, make_run, progress, server, started

from flambeau.errors import RunDirectoryError
from flambeau.observe import Event
from flambeau.reports.digest_writer import DigestWriter
from flambeau.reports.reading import read_history, read_on


def test_a_run_without_events_has_an_empty_history(tmp_path: Path) -> None:
    history = read_history(make_run(tmp_path / "run"))
    assert (history.began, history.step, history.elapsed) == (None, 0, 0.0)


def test_progress_becomes_curves_over_steps_and_elapsed_time(tmp_path: Path) -> None:
    events = [("progress", 1002.0 + step, progress(step, 1 / step)) for step in (1, 2, 4)]
    history = read_history(make_run(tmp_path / "run", *started(), *events))
    loss = history.numbers.thinned("loss")
    assert loss.means.tolist() == [1.0, 0.5, 0.25]
    assert loss.steps.tolist() == [1, 2, 4]
    assert loss.elapsed.tolist() == [3.0, 4.0, 6.0]
    assert history.step == 4


def test_the_time_between_two_parts_of_a_run_does_not_count(tmp_path: Path) -> None:
    end = ("job_end", 1010.0, {"status": "stopped", "step": 5, "error": None, "metrics": {}})
    later = [("progress", 9004.0, progress(6))]
    run = make_run(tmp_path / "run", *started(), end, *started(9000.0), *later)
    history = read_history(run)
    assert history.elapsed == 14.0
    assert history.parts == 2
    assert history.end is None


def test_a_loss_that_is_lost_is_noted_with_its_step(tmp_path: Path) -> None:
    events = [
        ("progress", 1003.0 + step, progress(step, loss))
        for step, loss in ((1, 2.0), (2, float("nan")), (3, float("nan")))
    ]
    history = read_history(make_run(tmp_path / "run", *started(), *events))
    assert history.loss_lost == 2
    assert history.numbers.thinned("loss").steps.tolist() == [1]


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *started(), ("progress", 1003.0, progress(1)))
    line = json.dumps({"kind": "progress", "time": 1004.0, **progress(2)}) + "\n"
    with run.events.open("a") as log:
        log.write(line[:20])
        log.flush()
        history = read_history(run)
        assert history.step == 1
        log.write(line[20:])
    assert read_on(history, run)
    assert history.step == 2
    assert not read_on(history, run)


def test_fields_may_be_in_any_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *started())
    with run.events.open("a") as log:
        log.write(json.dumps({**progress(7), "time": 1004.0, "kind": "progress"}) + "\n")
    assert read_history(run).step == 7


def test_a_line_that_is_no_event_is_an_error_with_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *started())
    place = run.events.stat().st_size
    with run.events.open("a") as log:
        log.write("nonsense\n")
    with pytest.raises(RunDirectoryError, match=f"events.jsonl, at byte {place}, has a line"):
        read_history(run)


def test_a_server_in_a_lost_ones_place_adds_to_what_that_one_counted(tmp_path: Path) -> None:
    counts = [server(10, {"0": 8, "1": 2}), server(20, {"0": 15, "1": 5}), server(3, {"2": 3})]
    events = [("server", 1010.0 + 2 * k, fields) for k, fields in enumerate(counts)]
    served = read_history(make_run(tmp_path / "run", *started(), *events)).served
    assert served.staleness() == {0: 15, 1: 5, 2: 3}
    rates = served.servers[0].points.thinned("pulls_per_second")
    assert rates.means.tolist() == [5.0]  # and none from 20 to 3
    assert served.servers[0].points.thinned("staleness_mean").means.tolist() == [0.3]
    assert served.table_sizes.thinned("bytes").means.tolist() == [100, 200, 30]


def test_lost_processes_and_restarts_are_noted(tmp_path: Path) -> None:
    lost = {"rank": 1, "role": "worker", "reason": "was killed", "cause": "died", "host": "a"}
    run = make_run(
        tmp_path / "run",
        *started(),
        ("worker_lost", 1010.0, lost),
        ("restart", 1011.0, {"generation": 1, "reason": "worker 1 was killed"}),
        ("generation", 1012.0, {"number": 1}),
        ("job_start", 1013.0, {**JOB_START, "resumed_step": 2}),
    )
    history = read_history(run)
    assert [note.text for note in history.notes.items] == [
        "worker 1 on a: was killed",
        "worker 1 was killed",
    ]
    assert history.restarts == 1
    assert history.parts == 1
    phases = [(span.phase, span.begin, span.end) for span in history.spans.items]
    assert phases == [
        ("starting", 0.0, 2.0),
        ("training", 2.0, 12.0),
        ("starting", 12.0, 13.0),
        ("training", 13.0, 13.0),
    ]


def test_a_digest_gives_the_same_history_without_the_events_before_it(tmp_path: Path) -> None:
    events = [("progress", 1002.0 + step, progress(step, 1 / step)) for step in range(1, 3000)]
    shards = [("server", 4005.0, server(9, {"0": 3}))]
    run = make_run(tmp_path / "run", *started(), *events, *shards)
    whole = read_history(run)
    DigestWriter(run, every=1).observe(Event("progress", 0.0, {}))
    # What a digest stands for is not read again: here it could not be.
    head, size = run.events.read_bytes()[:200], run.events.stat().st_size
    run.events.write_bytes(head + b"x" * (size - 201) + b"\n")
    append(run, ("progress", 5000.0, progress(3000)))
    found = read_history(run)
    assert found.step == 3000
    losses = found.numbers.thinned("loss"), whole.numbers.thinned("loss")
    assert losses[0].highs.max() == losses[1].highs.max() == 1.0
    assert found.served.staleness() == whole.served.staleness() == {0: 3}
    assert found.served.tables() == whole.served.tables()


def test_a_digest_of_another_log_or_format_is_not_used(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *started(), ("progress", 1003.0, progress(5)))
    DigestWriter(run, every=1).observe(Event("progress", 0.0, {}))
    run.events.unlink()
    append(run, *started(2000.0), ("progress", 2003.0, progress(1)))
    assert read_history(run).step == 1
    run.digest.write_bytes(b"\x81\xa6format\x02")
    assert read_history(run).step == 1


def test_a_digest_is_written_after_so_many_events(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *started())
    writer = DigestWriter(run, every=3)
    for _ in range(2):
        writer.observe(Event("progress", 0.0, {}))
    assert not run.digest.exists()
    writer.observe(Event("progress", 0.0, {}))
    assert run.digest.exists()
