"""`flambeau stacks` on a job that runs, and on one that does not."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flambeau.checkpoint import RunDirectory

pytestmark = pytest.mark.usefixtures("loaded_once")
HERE = Path(__file__).parent


def stacks(run: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flambeau", "stacks", str(run), "--timeout", "60"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_stacks_of_all_workers_are_shown_and_the_job_continues(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    command = [sys.executable, str(HERE / "driver.py"), str(run.path)]
    training = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (run.path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        shown = stacks(run.path)
        assert shown.returncode == 0, shown.stderr
        assert "worker 0" in shown.stdout
        assert "worker 1" in shown.stdout
        assert "loop.py" in shown.stdout
        assert not run.stacks_request.exists()
        assert training.poll() is None
    finally:
        training.send_signal(signal.SIGINT)
        training.wait(60)
    after = stacks(run.path)
    assert after.returncode == 2
    assert after.stderr.startswith("error: no job runs in ")
