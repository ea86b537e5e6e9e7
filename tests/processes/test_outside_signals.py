"""Signals that a scheduler sends to all processes of a job: only the driver acts on them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.utils.data import DataLoader
from toy import QUIET, SparseNet, assert_same_tables, assert_same_weights, make_clicks

import flambeau as fb
from flambeau.clusters import outside_signals
from flambeau.errors import WorkerFailedError


class SignalAll(fb.Callback):
    """Sends one of the signals to the fork server and all roles after each of the first steps."""

    def on_step_end(self, view: Any) -> None:
        if view.rank != 0 or view.step > len(outside_signals.NUMBERS):
            return
        fork_server = psutil.Process().parent()
        assert fork_server is not None
        for process in (fork_server, *fork_server.children()):
            process.send_signal(outside_signals.NUMBERS[view.step - 1])
            with (Path(view.run_dir) / "signalled").open("a") as file:
                file.write(f"{process.pid}\n")


def train(run_dir: Path, *callbacks: Any) -> Any:
    return fb.fit(
        SparseNet(),
        make_clicks(160),
        loss="bce",
        label="label",
        batch_size=8,
        strategy=fb.ParameterServer(servers=1),
        cluster=fb.Local(2),
        observe=QUIET,
        callbacks=callbacks,
        run_dir=run_dir,
    )


def test_a_job_does_not_mind_signals_to_its_roles_and_fork_server(tmp_path: Path) -> None:
    signalled = train(tmp_path / "signalled", SignalAll())
    assert signalled.report["restarts"] == 0
    pids = (tmp_path / "signalled" / "signalled").read_text().split()
    assert len(pids) == 4 * len(outside_signals.NUMBERS)
    assert len(set(pids)) == 4  # 2 workers, a server and the fork server
    undisturbed = train(tmp_path / "undisturbed")
    assert_same_weights(undisturbed, signalled)
    assert_same_tables(undisturbed, signalled)


def endings() -> dict[str, int | None]:
    """How processes that a role starts end on SIGTERM, after the role itself has survived all."""
    for number in outside_signals.NUMBERS:
        signal.raise_signal(number)
    context = multiprocessing.get_context("fork")
    forked = context.Process(target=time.sleep, args=(600,), daemon=True)
    threaded = context.Process(target=time.sleep, args=(600,), daemon=True)
    forked.start()
    starting = threading.Thread(target=threaded.start)
    starting.start()
    starting.join()
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    batches: Any = iter(DataLoader(list(range(99)), num_workers=1, collate_fn=list))
    next(batches)
    (loading,) = batches._workers
    return {
        "forked": _terminated(forked),
        "threaded": _terminated(threaded),
        "loading": _terminated(loading),
        "program": _terminated(program),
    }


def _terminated(process: Any) -> int | None:
    process.terminate()
    if isinstance(process, subprocess.Popen):
        return process.wait(timeout=60)
    process.join(timeout=60)
    code: int | None = process.exitcode
    return code


def test_processes_that_a_role_starts_can_be_terminated() -> None:
    (seen,) = fb.run(endings, cluster=fb.Local(1))
    # torch's own handler has a loader process exit when its parent asks for it.
    ended = dict.fromkeys(("forked", "threaded", "program"), -signal.SIGTERM)
    assert seen == ended | {"loading": 0}


def ends_badly(folder: str) -> None:
    """Note a SIGTERM on one rank while the other one fails."""
    mark = Path(folder) / "ready"
    if os.environ["RANK"] == "1":
        while not mark.exists():
            time.sleep(0.01)
        raise ValueError("on purpose")
    signal.signal(signal.SIGTERM, lambda *_: (Path(folder) / "terminated").touch())
    mark.touch()
    time.sleep(600)


def test_a_function_is_killed_without_a_signal_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailedError, match="ValueError: on purpose"):
        fb.run(ends_badly, str(tmp_path), cluster=fb.Local(2))
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


SCRIPT = """
import os, pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
if os.environ["RANK"] == "1":
    while not (here / "ready").exists():
        time.sleep(0.01)
    sys.exit(3)

def end(*_):
    (here / "terminated").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
(here / "ready").touch()
time.sleep(600)
"""


def test_a_script_is_asked_to_end(tmp_path: Path) -> None:
    script, marks = tmp_path / "script.py", tmp_path / "marks"
    script.write_text(SCRIPT)
    marks.mkdir()
    command = [sys.executable, "-m", "flambeau", "run", "-n", "2", str(script), str(marks)]
    assert subprocess.run(command, timeout=120).returncode == 3
    assert sorted(path.name for path in marks.iterdir()) == ["ready", "terminated"]
