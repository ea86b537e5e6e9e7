"""The page of runs: sentences, pictures and tables; everything of users is escaped."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from made_run import EVIL, SERVED, append, make_run, progress, server, started

from flambeau.checkpoint import RunDirectory
from flambeau.config import CodeRef
from flambeau.reports.comparison import duration
from flambeau.reports.run_page import run_page
from flambeau.reports.run_view import RunView, open_run
from flambeau.reports.run_words import advice, next_commands, sentences

VOID = {"meta", "input", "link"}
DONE = {"status": "finished", "step": 90, "error": None, "metrics": {"auc": 0.75}}
ROWS = {"read": 800, "applied": 720, "dropped": 80, "repeated": 0, "skipped": 0}
SECONDS = {"data": 0.1, "dense": 0.2, "sparse": 0.05, "wait": 0.05}
REPORT: dict[str, Any] = {
    **DONE,
    "rows": ROWS,
    "restarts": 1,
    "wall_seconds": 100.0,
    "rows_per_second": 12.5,
    "seconds_per_step": SECONDS,
    "by_worker": {
        "0": {"seconds_per_step": SECONDS},
        "1": {"seconds_per_step": {**SECONDS, "data": 0.3}},
    },
    "versions": {"torch": "2.13"},
}


class Parsed(HTMLParser):
    """The tags and texts of a page; wrong nesting is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def trained(path: Path, *more: tuple[str, float, dict[str, Any]], **settings: Any) -> RunDirectory:
    events = [("progress", 1002.0 + step, progress(step, 1 / step)) for step in range(1, 91)]
    evaluation = {"step": 90, "epoch": 0, "metrics": {"auc": 0.75}, "rows": 10, "seconds": 3.0}
    return make_run(
        path,
        *started(),
        *events,
        ("evaluation", 1095.0, evaluation),
        ("checkpoint", 1096.0, {"step": 90, "path": "x"}),
        *more,
        **settings,
    )


def finished(path: Path, **settings: Any) -> RunView:
    run = trained(path, ("job_end", 1097.0, DONE), **settings)
    run.report.write_text(json.dumps(REPORT))
    return open_run(path)


def test_a_finished_run_is_said_to_be_finished_first(tmp_path: Path) -> None:
    view = finished(tmp_path / "run")
    assert sentences(view) == (
        "Net trained by all reduce: 2 workers on this machine, 4 rows a batch of each worker. "
        "It finished at step 90 after 1 min 37 s; the last evaluation: auc 0.75."
    )
    texts = Parsed(run_page([view])).texts
    assert texts.index(sentences(view)) < texts.index("Training")


def test_a_run_whose_driver_was_killed_is_interrupted(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    assert "It ended at step 90 after 1 min 36 s without a report" in sentences(
        open_run(tmp_path / "run")
    )


def test_a_failed_run_names_its_error(tmp_path: Path) -> None:
    error = f"worker 1 was killed by SIGKILL {EVIL}\nmore"
    run = trained(
        tmp_path / "run", ("job_end", 1097.0, {**DONE, "status": "failed", "error": error})
    )
    run.report.write_text(json.dumps({**REPORT, "status": "failed", "error": error}))
    assert sentences(open_run(run.path)).endswith(
        f"It failed at step 90 after 1 min 37 s: worker 1 was killed by SIGKILL {EVIL}"
    )
    assert next_commands(open_run(run.path))[0][1] == "the same command again resumes the run"


def test_a_run_at_work_says_how_far_it_is(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    with run.lock():
        words = sentences(open_run(run.path))
    assert words.endswith("It is running: step 90 of 100 (90%), epoch 1; about 10 s left.")


def test_each_picture_is_valid_and_has_a_description(tmp_path: Path) -> None:
    run = trained(
        tmp_path / "run", ("server", 1100.0, server(5, {"0": 3, "4": 1})), strategy=SERVED
    )
    page = run_page([open_run(run.path)])
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert all("aria-label" in picture or "aria-hidden" in picture for picture in pictures)
    texts = Parsed(page).texts
    for title in ("Training loss", "auc", "Speed", "Learning rate", "Step time", "Staleness"):
        assert title in texts


def test_runs_have_a_line_each_in_the_same_pictures(tmp_path: Path) -> None:
    runs = [finished(tmp_path / name, batch_size=size) for name, size in (("a", 4), ("b", 8))]
    page = run_page(runs)
    loss = page[page.index("<h3>Training loss") :].partition("</svg>")[0]
    assert re.findall(r'class="(line \w+)" data-name="(\w+)"', loss) == [
        ("line s0", "a"),
        ("line s1", "b"),
    ]
    texts = Parsed(page).texts
    place = texts.index("batch_size")
    assert texts[place : place + 3] == ["batch_size", "4", "8"]


def test_runs_of_the_same_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    runs = [finished(tmp_path / folder / "run") for folder in ("a", "b")]
    assert str(tmp_path / "b" / "run") in Parsed(run_page(runs)).texts


def test_what_users_wrote_is_text_only(tmp_path: Path) -> None:
    lost = {"rank": 0, "role": EVIL, "reason": EVIL, "cause": "died", "host": EVIL}
    run = trained(
        tmp_path / EVIL.replace("/", "-"),
        ("worker_lost", 1097.0, lost),
        ("warning", 1097.0, {"text": EVIL}),
        ("exception", 1097.0, {"rank": 0, "error": EVIL, "text": EVIL, "traceback": EVIL}),
        ("scalars", 1098.0, {"step": 90, "values": {EVIL: 1.0}}),
        ("evaluation", 1099.0, {"step": 90, "epoch": 0, "metrics": {EVIL: 1.0}, "rows": 1}),
        ("best", 1099.0, {"step": 90, "metric": EVIL, "value": 1.0}),
        (
            "generation",
            1100.0,
            {"number": 1, "started": [{"host": EVIL, "cores": 1, "roles": [EVIL]}]},
        ),
        model=CodeRef(path="m:Net", args={"name": EVIL}),
    )
    report = {**REPORT, "status": "failed", "error": EVIL, "versions": {EVIL: EVIL}}
    run.report.write_text(json.dumps({**report, "metrics": {EVIL: 1.0}}))
    for runs in ([open_run(run.path)], [open_run(run.path), finished(tmp_path / "other")]):
        page = run_page(runs)
        assert Parsed(page).tags.count("script") == 1  # ours
        assert EVIL not in page
        assert EVIL in Parsed(page).texts


def test_the_page_refers_to_nothing_and_allows_nothing_else(tmp_path: Path) -> None:
    page = run_page([finished(tmp_path / "run")])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www.w3.org/2000/svg)", page)


def test_the_slowest_worker_and_what_became_of_rows_are_shown(tmp_path: Path) -> None:
    texts = Parsed(run_page([finished(tmp_path / "run")])).texts
    assert {"worker 0", "worker 1 (slowest)", "all workers"} <= set(texts)
    assert texts[texts.index("dropped") + 1] == "80"


def test_advice_is_about_what_stands_out(tmp_path: Path) -> None:
    view = finished(tmp_path / "run")
    found = " ".join(advice(view))
    assert "80 rows changed nothing" in found
    assert "wait for rows 25%" not in found  # that is not much
    append(view.directory, ("progress", 1200.0, progress(91, float("nan"))))
    assert "The loss was not finite at step 91" in " ".join(advice(open_run(view.directory.path)))


def test_a_run_that_has_not_started_has_a_page(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    assert "It has not started." in run_page([open_run(tmp_path / "run")])


def test_steps_that_go_back_after_a_restart_begin_another_line(tmp_path: Path) -> None:
    again = [("progress", 1100.0 + k, progress(40 + k)) for k in range(5)]
    run = trained(tmp_path / "run", *again)
    page = run_page([open_run(run.path)])
    by_step, by_time = re.findall(
        r"<svg.*?</svg>", page[page.index("<h3>Training loss") :], re.DOTALL
    )[:2]
    assert by_step.count('class="line') == 2
    assert by_time.count('class="line') == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (12.4, "12 s"),
        (59.7, "1 min"),
        (245, "4 min 5 s"),
        (7380, "2 h 3 min"),
        (266_400, "3 days 2 h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
