"""`flambeau top` in a real terminal and without one."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from made_run import append, make_run, progress, server, started

from flambeau.checkpoint import RunDirectory

FLAMBEAU = [sys.executable, "-m", "flambeau"]
SECONDS = {"data": 0.1, "dense": 0.2, "sparse": 0.0, "wait": 0.1}


def made(path: Path) -> RunDirectory:
    worker = {"steps": 20, "seconds_per_step": SECONDS, "memory_bytes": 5 << 20}
    events = [("progress", 1002.0 + step, progress(step, 1 / step)) for step in range(1, 21)]
    return make_run(
        path,
        *started(),
        *events,
        *(("worker", 1030.0, {"rank": rank, **worker}) for rank in (0, 1)),
        ("server", 1031.0, server(5, {"0": 3})),
        ("warning", 1032.0, {"text": "[bold]mind\x1b[31m this"}),
    )


def test_without_a_terminal_it_is_plain_text_of_the_newest_run(tmp_path: Path) -> None:
    os.utime(made(tmp_path / "old").events, (1, 1))
    made(tmp_path / "new")
    command = [*FLAMBEAU, "top", str(tmp_path), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "\x1b" not in done.stdout
    assert "new" in done.stdout.splitlines()[0]
    assert re.search(r"0 +20 +400 ms +25% +50% +0% +25% +5.24 MB", done.stdout)
    assert "[bold]mind" in done.stdout


def test_a_terminal_shows_news_until_q(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(COLUMNS="120", LINES="40", TERM="xterm")
        os.execv(sys.executable, [*FLAMBEAU, "top", str(run.path), "--every", "0.2"])
    seen = read_until(terminal, b"step 20 after")
    append(run, ("progress", 1040.0, progress(21)))
    seen += read_until(terminal, b"step 21 after")
    os.write(terminal, b"s")
    seen += read_until(terminal, b"sorted by time")
    os.write(terminal, b"q")
    # The terminal is as it was before: the other screen is left.
    read_until(terminal, b"\x1b[?1049l")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    os.close(terminal)


def read_until(terminal: int, end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        seen += os.read(terminal, 65536)
    return seen
