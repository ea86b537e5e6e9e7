"""Pages of runs in a real browser: pictures are there, nothing leaves them, nothing is wrong."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import REMEDY, Tab, chromium, open_browser
from made_run import EVIL, SERVED, make_run, progress, server, started

from lacking import missing

FLAMBEAU = [sys.executable, "-m", "flambeau"]
HERE = Path(__file__).parent
DONE = {"status": "finished", "step": 90, "error": None, "metrics": {"auc": 0.75}}


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    if chromium() is None:
        missing("no Chromium", REMEDY)
    with open_browser(tmp_path / "profile") as browser:
        yield browser.new_tab()


def trained(path: Path, **settings: Any) -> Path:
    events = [("progress", 1002.0 + step, progress(step, 1 / step)) for step in range(1, 91)]
    evaluations = [
        ("evaluation", 1094.0 + k, {"step": k, "epoch": 0, "metrics": {EVIL: k / 90}, "rows": 1})
        for k in (45, 90)
    ]
    more = [
        ("server", 1190.0, server(5, {"0": 3, "2": 1})),
        ("warning", 1191.0, {"text": EVIL}),
        ("job_end", 1192.0, DONE),
    ]
    return make_run(path, *started(), *events, *evaluations, *more, **settings).path


def write_report(out: Path, *runs: Path) -> str:
    subprocess.run([*FLAMBEAU, "report", *map(str, runs), "-o", str(out)], check=True, timeout=120)
    return out.as_uri()


def test_a_report_of_several_runs_has_their_curves_and_asks_for_nothing(
    tab: Tab, tmp_path: Path
) -> None:
    runs = [trained(tmp_path / EVIL.replace("/", "-"), strategy=SERVED), trained(tmp_path / "b")]
    url = write_report(tmp_path / "page.html", *runs)
    tab.open(url)
    assert tab.evaluate("document.querySelectorAll('main script').length") == 0
    assert EVIL.replace("/", "-") in tab.evaluate("document.title")
    lengths = "[...document.querySelectorAll('article svg.by-step')][0].querySelectorAll('.line')"
    seen = tab.evaluate(f"[...{lengths}].map(line => line.getTotalLength())")
    assert len(seen) == 2
    assert min(seen) > 100
    assert tab.requests == [url]
    assert tab.complaints == []


def test_pictures_are_over_steps_or_time_and_show_values_under_the_pointer(
    tab: Tab, tmp_path: Path
) -> None:
    tab.open(write_report(tmp_path / "page.html", trained(tmp_path / "a")))
    visible = "['step', 'time'].map(k => document.querySelector('.by-' + k).checkVisibility())"
    assert tab.evaluate(visible) == [True, False]
    tab.evaluate("document.getElementById('by-time').click()")
    assert tab.evaluate(visible) == [False, True]
    tab.evaluate("document.getElementById('by-step').click()")
    tab.evaluate("document.querySelector('.by-step').scrollIntoView()")
    box = tab.evaluate(
        "(b => [b.left, b.top, b.width, b.height])"
        "(document.querySelector('.by-step').getBoundingClientRect())"
    )
    # The last step of the curve: 90, with a loss of 1/90.
    x, y = box[0] + box[2] * 0.955, box[1] + box[3] / 2
    tab.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    words = tab.evaluate("document.querySelector('.read').textContent")
    assert re.fullmatch(r"step (89|90): a 0\.01\d*", words), words
    assert tab.complaints == []


def test_a_phone_shows_the_whole_width_in_readable_letters(tab: Tab, tmp_path: Path) -> None:
    tab.look(width=375)
    tab.open(write_report(tmp_path / "page.html", trained(tmp_path / "a", strategy=SERVED)))
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    heights = (
        "[...document.querySelectorAll('.by-step text')].map(t => t.getBoundingClientRect().height)"
    )
    assert tab.evaluate(f"Math.min(...{heights})") >= 11
    overlaps = """[...document.querySelectorAll('svg.by-step')].some(svg => {
      const boxes = [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect());
      return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right - 1 &&
        b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3));
    })"""
    assert not tab.evaluate(overlaps)
    colours = "[getComputedStyle(document.body)].map(s => [s.backgroundColor, s.color])[0]"
    light = tab.evaluate(colours)
    tab.look(dark=True, width=375)
    dark = tab.evaluate(colours)
    assert brightness(light[0]) > brightness(light[1])
    assert brightness(dark[0]) < brightness(dark[1])


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.mark.usefixtures("loaded_once")
def test_a_run_is_watched_from_before_its_beginning_to_its_end(tab: Tab, tmp_path: Path) -> None:
    run = tmp_path / "run"
    watching = subprocess.Popen(
        [*FLAMBEAU, "watch", str(run)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    training = subprocess.Popen(
        [sys.executable, str(HERE / "driver.py"), str(run)], stderr=subprocess.DEVNULL
    )
    try:
        assert watching.stdout is not None
        url = watching.stdout.readline().removeprefix("Open ").strip()
        port = re.search(r":(\d+)/", url)
        assert port is not None
        assert f"ssh -N -L {port[1]}:127.0.0.1:{port[1]} " in watching.stdout.readline()
        tab.open(url)
        tab.wait_until("document.querySelector('main .line') !== null")
        tab.evaluate("window.first = document.querySelector('.lead').textContent")
        tab.wait_until("document.querySelector('.lead').textContent !== window.first")
        assert tab.evaluate("document.getElementById('connection').textContent") == "live"
        training.send_signal(signal.SIGINT)
        assert training.wait(60) != 0
        assert "It was stopped by a signal" in (run / "report.html").read_text()
        tab.wait_until("document.getElementById('connection').textContent === 'the run has ended'")
        assert "It was stopped by a signal" in tab.evaluate(
            "document.querySelector('.lead').textContent"
        )
        asked = {request.partition("?")[0] for request in tab.requests} - {"data:,"}
        assert asked == {f"http://127.0.0.1:{port[1]}/{name}" for name in ("", "events")}
        assert tab.complaints == []
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        for process in (watching, training):
            process.kill()
            process.communicate()
