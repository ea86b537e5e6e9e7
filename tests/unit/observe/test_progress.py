import io
import os
from collections.abc import Iterator
from typing import Any, Literal, TextIO

import pytest
from rich.console import Console

from flambeau.observe import Event, display

JOB = {
    "name": "digits",
    "workers": 2,
    "batch_size": 64,
    "global_batch": 128,
    "steps_total": 900,
    "epochs": 3,
    "run_dir": "runs/digits",
    "resumed_step": 0,
}


def job_start(**fields: Any) -> Event:
    return Event("job_start", 0.0, {**JOB, **fields})


def progress(time: float, step: int = 120, **fields: Any) -> Event:
    numbers = {"rows_per_second": 12345.4, "loss": 0.43212, "lr": 0.1, "steps_total": 900}
    return Event("progress", time, {"step": step, "epoch": 2, **numbers, **fields})


def job_end(status: str = "finished", error: str | None = None) -> Event:
    fields = {"status": status, "step": 900, "error": error, "metrics": {"accuracy": 0.93}}
    return Event("job_end", 100.0, fields)


EVALUATION = Event(
    "evaluation", 1.0, {"step": 300, "epoch": 2, "metrics": {"loss": 0.33, "accuracy": 0.912}}
)
PROGRESS_LINE = "step 120/900  epoch 3  12,345 rows/s  loss 0.4321  lr 0.1"


def shown(
    *events: Event,
    mode: Literal["auto", "bar", "lines", "none"] = "lines",
    width: int = 100,
    **console: Any,
) -> list[str]:
    file = io.StringIO()
    observer = display(mode, 5.0, Console(file=file, width=width, **console))
    for event in events:
        observer.observe(event)
    observer.close()
    return file.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    controller, terminal = os.openpty()
    with os.fdopen(terminal, "w") as file:
        yield file
    os.close(controller)


def test_the_start_says_how_large_a_step_is() -> None:
    assert shown(job_start()) == [
        "run digits: a step has 128 rows, 64 from each of 2 workers, runs/digits",
    ]


def test_the_start_says_when_a_step_is_one_workers() -> None:
    assert shown(job_start(global_batch=64)) == [
        "run digits: a step has 64 rows of one of 2 workers, which update separately, runs/digits",
    ]


def test_one_worker_is_singular() -> None:
    assert shown(job_start(workers=1, global_batch=64)) == [
        "run digits: a step has 64 rows, 1 worker, runs/digits",
    ]


def test_a_resumed_run_says_where_it_goes_on() -> None:
    assert shown(job_start(resumed_step=300))[1] == "resuming from step 300"


def test_progress_is_one_line() -> None:
    assert shown(progress(0.0)) == [PROGRESS_LINE]


def test_progress_is_shown_every_few_seconds_of_the_events_time() -> None:
    lines = shown(*(progress(float(second), step=second) for second in range(12)))
    assert [line.split("/")[0] for line in lines] == ["step 0", "step 5", "step 10"]


def test_the_last_progress_is_shown_when_the_job_ends() -> None:
    lines = shown(progress(0.0, step=1), progress(1.0, step=2), job_end())
    assert [line.split("  ")[0] for line in lines] == [
        "step 1/900",
        "step 2/900",
        "finished at step 900",
    ]


def test_a_job_of_unknown_length_shows_the_step_alone() -> None:
    assert shown(progress(0.0, steps_total=None))[0].startswith("step 120  epoch 3")


def test_a_number_that_is_not_known_is_left_out() -> None:
    line = "step 120/900  epoch 3  loss 0.4321"
    assert shown(progress(0.0, rows_per_second=None, lr=None)) == [line]


def test_evaluations_are_always_shown() -> None:
    line = "step 300  valid: loss 0.33  accuracy 0.912"
    assert shown(EVALUATION, EVALUATION) == [line, line]


def test_each_line_of_a_log_names_its_worker() -> None:
    log = Event("log", 0.0, {"rank": 3, "stream": "stdout", "text": "one [bold]\ntwo\n"})
    assert shown(log) == ["[worker 3] one [bold]", "[worker 3] two"]


def test_a_long_line_is_not_broken() -> None:
    text = "word " * 100
    assert shown(Event("warning", 0.0, {"text": text})) == [f"warning: {text}"]


def test_a_lost_worker_and_the_restart_are_shown() -> None:
    lost = Event("worker_lost", 0.0, {"rank": 1, "reason": "killed by signal 9"})
    restart = Event("restart", 0.0, {"generation": 2, "reason": "worker 1 lost"})
    assert shown(lost, restart) == [
        "worker 1 lost: killed by signal 9",
        "restart as generation 2: worker 1 lost",
    ]


@pytest.mark.parametrize(
    ("agents", "text"),
    [([1], "agent 1 starts again in 2 s: lost"), ([0, 1], "agents 0, 1 start again in 2 s: lost")],
)
def test_a_restart_of_agents_alone_is_no_other_generation(agents: list[int], text: str) -> None:
    fields = {"generation": 0, "reason": "lost", "delay": 2.0, "agents": agents}
    assert shown(Event("restart", 0.0, fields)) == [text]


def test_a_lost_server_is_not_called_a_worker() -> None:
    fields = {"rank": 0, "role": "server", "reason": "killed by signal 9"}
    assert shown(Event("worker_lost", 0.0, fields)) == ["server 0 lost: killed by signal 9"]
    log = {"rank": 1, "role": "server", "stream": "stderr", "text": "slow"}
    assert shown(Event("log", 0.0, log)) == ["[server 1] slow"]


def test_one_process_that_starts_again_is_named() -> None:
    fields = {"rank": 1, "role": "worker", "generation": 0, "reason": "killed"}
    assert shown(Event("restart", 0.0, fields)) == ["worker 1 starts again: killed"]


def server(shard: int, shards: int, staleness: dict[str, int]) -> Event:
    fields = {"shard": shard, "shards": shards, "staleness": staleness, "tables": {}}
    return Event("server", 0.0, fields)


def test_servers_and_their_staleness_are_at_the_end_of_the_line() -> None:
    told = (server(0, 2, {"1": 2}), server(1, 2, {"1": 1, "3": 1}))
    assert shown(*told, progress(0.0)) == [f"{PROGRESS_LINE}  2 servers, staleness 1.5"]


def test_without_staleness_only_the_servers_are_named() -> None:
    assert shown(server(0, 1, {}), progress(0.0)) == [f"{PROGRESS_LINE}  1 server"]


def test_the_bar_shows_the_servers_as_well() -> None:
    events = (job_start(), server(0, 1, {"0": 1}), progress(1.0))
    bar = shown(*events, mode="bar", width=140)[-1]
    assert "loss 0.4321  1 server, staleness 0.0" in bar


def test_the_end_is_one_line_with_the_metrics() -> None:
    assert shown(job_end()) == ["finished at step 900  accuracy 0.93"]


def test_a_failure_leaves_its_error_to_be_shown_once_by_others() -> None:
    end = job_end("failed", "worker 1 raised\n  File ...\nKeyError: 'x'\n")
    assert shown(end)[0].startswith("failed at step 900  ")


def test_there_is_no_colour_without_a_terminal() -> None:
    log = Event("log", 0.0, {"rank": 0, "stream": "stdout", "text": "\x1b[31mred\x1b[0m"})
    assert shown(Event("warning", 0.0, {"text": "slow"}), log) == [
        "warning: slow",
        "[worker 0] red",
    ]


def test_warnings_are_coloured_on_a_terminal() -> None:
    warning = Event("warning", 0.0, {"text": "slow"})
    lines = shown(warning, force_terminal=True, color_system="standard")
    assert lines == ["\x1b[33mwarning: slow\x1b[0m"]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    warning = Event("warning", 0.0, {"text": "slow"})
    lines = shown(warning, force_terminal=True, color_system="standard")
    assert lines == ["warning: slow"]


def test_nothing_is_shown_when_asked_for_nothing() -> None:
    assert shown(job_start(), progress(0.0), job_end(), mode="none") == []


@pytest.mark.parametrize(("cause", "text"), [("exception", "failed"), ("died", "lost")])
def test_a_worker_that_raised_has_failed_and_one_that_died_is_lost(cause: str, text: str) -> None:
    fields = {"rank": 1, "role": "worker", "reason": "KeyError: 'x'", "cause": cause}
    assert shown(Event("worker_lost", 1.0, fields)) == [f"worker 1 {text}: KeyError: 'x'"]


def test_what_the_users_code_prints_is_shown_also_without_progress() -> None:
    log = Event("log", 1.0, {"rank": 1, "role": "worker", "stream": "stdout", "text": "hello"})
    assert shown(job_start(), log, job_end(), mode="none") == ["[worker 1] hello"]


def test_the_display_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    display("lines", 5.0).observe(job_end())
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "finished at step 900  accuracy 0.93\n")


def test_auto_is_lines_where_output_goes_to_a_file() -> None:
    assert shown(progress(0.0), mode="auto") == [PROGRESS_LINE]


def test_auto_is_lines_where_only_colours_are_forced() -> None:
    assert len(shown(progress(0.0), mode="auto", force_terminal=True)) == 1


def test_auto_is_a_bar_on_a_terminal(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    on_terminal = display("auto", 5.0, Console(file=terminal))
    assert type(on_terminal) is type(display("bar", 5.0, Console(file=io.StringIO())))


def test_auto_is_lines_on_a_dumb_terminal(
    terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    on_terminal = display("auto", 5.0, Console(file=terminal))
    assert type(on_terminal) is type(display("lines", 5.0, Console(file=io.StringIO())))


def test_the_bar_ends_with_the_last_progress_and_metrics() -> None:
    bar, end = shown(job_start(), progress(1.0), EVALUATION, job_end(), mode="bar", width=140)[-2:]
    status = "step 120/900  epoch 3/3  12,345 rows/s  loss 0.4321  valid: loss 0.33  accuracy 0.912"
    assert status in bar
    assert end == "finished at step 900  accuracy 0.93"


def test_a_bar_on_a_narrow_terminal_loses_nothing() -> None:
    lines = shown(job_start(), progress(1.0), EVALUATION, mode="bar", width=60)
    words = " ".join(lines).split()
    assert {"120/900", "12,345", "0.4321", "0.33", "0.912"} <= set(words)


def test_the_time_left_follows_from_the_events_time() -> None:
    steps = (progress(float(second), step=100 * second) for second in range(1, 6))
    assert shown(job_start(), *steps, mode="bar")[-1].rstrip().endswith("0:00:04")


def test_the_time_left_is_unknown_when_the_length_is() -> None:
    steps = (progress(float(second), step=second, steps_total=None) for second in range(1, 6))
    assert ":" not in shown(job_start(steps_total=None), *steps, mode="bar")[-1]


def test_messages_are_printed_above_the_bar() -> None:
    log = Event("log", 2.0, {"rank": 0, "stream": "stderr", "text": "hello"})
    lines = shown(job_start(), progress(1.0), log, mode="bar")
    assert lines[1] == "[worker 0] hello"
    assert "step 120/900" in lines[2]


def test_a_bar_that_never_started_leaves_nothing_behind() -> None:
    assert shown(mode="bar") == []
