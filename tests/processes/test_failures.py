"""Whatever hits a job, it ends (or goes on) within seconds, says why, and leaves nothing behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from toy import QUIET, Net, Slow, Strike, assert_same_weights, make_data

import flambeau as fb
from flambeau.errors import JobFailedError, WorkerFailedError, WorkerLostError

HERE = Path(__file__).parent
FAST = {"heartbeat_timeout": 5.0}


def fit(run_dir: Path, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "train": make_data(),
        "loss": "cross_entropy",
        "batch_size": 8,
        "epochs": 3,
        "cluster": fb.Local(2),
        "checkpoints": {"every_steps": 4},
        "observe": QUIET,
        "run_dir": run_dir,
        **changes,
    }
    return fb.fit(Net(), **arguments)


def random_strike(seed: int, how: str) -> Strike:
    numbers = random.Random(seed)
    return Strike(numbers.randrange(2), numbers.randrange(1, 20), how)


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_workers_exception_is_shown_once_with_its_own_traceback(
    tmp_path: Path, seed: int
) -> None:
    strike = random_strike(seed, "raise")
    with pytest.raises(WorkerFailedError) as raised:
        fit(tmp_path / "run", callbacks=[strike])
    message = str(raised.value)
    assert message.startswith(f"worker {strike.rank} failed")
    assert message.count("RuntimeError: struck on purpose") == 1
    assert "in on_step_end" in message
    assert "flambeau/training" not in message
    (event,) = [e for e in events(tmp_path / "run") if e.get("error") == "RuntimeError"]
    assert event["kind"] == "exception"
    assert "flambeau/training/loop.py" in event["traceback"]


def test_a_full_disk_is_explained_and_not_tried_again(tmp_path: Path) -> None:
    strike = Strike(1, 3, "full disk")
    with pytest.raises(JobFailedError, match="some/file: no space is left on the disk") as raised:
        fit(tmp_path / "run", callbacks=[strike], recovery={"max_restarts": 3})
    assert not isinstance(raised.value, WorkerFailedError)
    assert [frame.name for frame in raised.traceback][-1] == "fit"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_worker_ends_the_job_and_is_named(tmp_path: Path, seed: int) -> None:
    strike = random_strike(seed, "kill")
    with pytest.raises(WorkerLostError, match=f"worker {strike.rank} was killed by SIGKILL"):
        fit(tmp_path / "run", callbacks=[strike])
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stopped_worker_is_noticed_by_its_silence(tmp_path: Path, seed: int) -> None:
    strike = random_strike(seed, "stop")
    with pytest.raises(WorkerLostError, match=f"worker {strike.rank} has not answered for 5"):
        fit(tmp_path / "run", callbacks=[strike], recovery=FAST)


@pytest.mark.parametrize("how", ["kill", "stop", "raise"])
def test_a_job_restarts_from_its_last_checkpoint_and_loses_nothing(
    tmp_path: Path, how: str
) -> None:
    strike = random_strike(len(how), how)
    recovery = FAST | {"max_restarts": 1}
    struck = fit(tmp_path / "struck", callbacks=[strike], recovery=recovery)
    assert struck.report["restarts"] == 1
    rows = struck.report["rows"]
    assert rows["applied"] == 303
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"]
    kinds = [event["kind"] for event in events(tmp_path / "struck")]
    assert kinds.count("worker_lost") == kinds.count("restart") == 1
    assert_same_weights(struck, fit(tmp_path / "whole"))


def test_restarts_are_limited(tmp_path: Path) -> None:
    class AlwaysKill(fb.Callback):
        def on_step_end(self, view: Any) -> None:
            if view.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLostError):
        fit(tmp_path / "run", callbacks=[AlwaysKill()], recovery={"max_restarts": 2})
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["restarts"] == 2


class Endless(fb.Callback):
    """Worker 1 never comes to the end of its third step, once."""

    def on_step_end(self, view: Any) -> None:
        mark = Path(view.run_dir) / "struck"
        if view.rank == 1 and view.step == 3 and not mark.exists():
            mark.touch()
            self.loop_for_ever()

    def loop_for_ever(self) -> None:
        while True:
            time.sleep(0.01)


def test_a_worker_that_makes_no_step_is_shown_with_its_stacks_and_replaced(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recovery = {"max_restarts": 1, "progress_timeout": 3.0}
    result = fit(run, callbacks=[Endless()], recovery=recovery)
    assert result.report["restarts"] == 1
    seen = events(run)
    (lost,) = [event for event in seen if event["kind"] == "worker_lost"]
    assert (lost["rank"], lost["cause"]) == (1, "stuck")
    assert (
        "has made no step for 3 seconds (recovery.progress_timeout); waiting: worker 0"
        in (lost["reason"])
    )
    stack = [e["text"] for e in seen[: seen.index(lost)] if e["kind"] == "log" and e["rank"] == 1]
    assert any("in loop_for_ever" in line for line in stack)
    assert not any(e["kind"] == "log" and e["rank"] == 0 for e in seen)


def start_driver(run_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    driver = subprocess.Popen(
        [sys.executable, str(HERE / "driver.py"), str(run_dir), *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (run_dir / "begun").exists() or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[1]
    return driver


def wait_until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
def test_an_interrupted_job_saves_its_last_step_and_goes_on_later(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    driver = start_driver(run)
    time.sleep(random.Random(int(number)).uniform(0, 0.5))
    driver.send_signal(number)
    error = driver.communicate(timeout=30)[1]
    assert driver.returncode == code
    assert "stopped at step" in error
    report = json.loads((run / "report.json").read_text())
    assert report["status"] == "stopped"
    assert json.loads((run / "latest.json").read_text())["step"] == report["step"]


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    driver = start_driver(tmp_path / "run")
    for role in roles_of(driver.pid):
        os.kill(role, signal.SIGSTOP)  # so that no worker can answer the first
    driver.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert driver.poll() is None
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=15)
    assert driver.returncode != 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    last = [e for e in events(tmp_path / "run") if e["kind"] in ("job_start", "progress")][-1]
    assert report["step"] == last.get("step", 0)
    assert report["rows"]["applied"] == report["rows"]["read"] == last.get("rows", 0)


def test_workers_that_do_not_stop_in_time_are_ended(tmp_path: Path) -> None:
    driver = start_driver(tmp_path / "run", '{"grace_seconds": 2.0}')
    for role in roles_of(driver.pid):
        os.kill(role, signal.SIGSTOP)
    driver.send_signal(signal.SIGTERM)
    driver.communicate(timeout=20)
    assert driver.returncode == 143


def roles_of(pid: int) -> list[int]:
    (fork_server,) = psutil.Process(pid).children()
    return [child.pid for child in fork_server.children()]


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_killed_driver_takes_its_workers_along(tmp_path: Path, stopped: bool) -> None:
    driver = start_driver(tmp_path / "run")
    roles = roles_of(driver.pid)
    assert len(roles) == 2
    if stopped:
        os.kill(roles[1], signal.SIGSTOP)  # it cannot see its pipe end
    driver.kill()
    driver.communicate(timeout=10)
    wait_until(lambda: not any(psutil.pid_exists(role) for role in roles), seconds=10)


def test_a_killed_run_leaves_a_directory_that_can_be_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    driver = start_driver(run)
    wait_until(lambda: (run / "latest.json").exists())
    driver.kill()
    driver.communicate(timeout=10)
    step = json.loads((run / "latest.json").read_text())["step"]
    resumed = start_driver(run)
    wait_until(lambda: any(e["kind"] == "job_start" and e["resumed_step"] for e in events(run)))
    resumed.send_signal(signal.SIGINT)
    resumed.communicate(timeout=30)
    first, second = [e for e in events(run) if e["kind"] == "job_start"]
    assert first["resumed_step"] == 0
    assert second["resumed_step"] >= step
    before = events(run)[: events(run).index(second)]
    trained = max(e["rows"] for e in before if e["kind"] == "progress")
    rows = json.loads((run / "report.json").read_text())["rows"]
    assert rows["repeated"] == max(0, trained - second["resumed_rows"])


def test_two_jobs_cannot_share_a_run_directory(tmp_path: Path) -> None:
    driver = start_driver(tmp_path / "run")
    with pytest.raises(ValueError, match=f"in use by process {driver.pid}"):
        fit(tmp_path / "run")
    driver.kill()
    driver.communicate(timeout=10)
    wait_until(lambda: not psutil.pid_exists(driver.pid))


def test_what_workers_print_is_shown_by_rank(tmp_path: Path) -> None:
    class Talk(fb.Callback):
        def on_start(self, view: Any) -> None:
            print(f"hello from {view.rank}")

    fit(tmp_path / "run", callbacks=[Talk(), Slow(0.0)], epochs=1)
    lines = {(e["rank"], e["text"]) for e in events(tmp_path / "run") if e["kind"] == "log"}
    assert {(0, "hello from 0"), (1, "hello from 1")} <= lines
