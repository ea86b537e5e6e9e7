"""Clients of a real Ray (`ray://`): a process on the head node drives their jobs."""

import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil
from ray_nodes import Nodes

from flambeau.clusters.ray.client import server_failed
from flambeau.clusters.ray.driver import OUTCOME, OUTCOME_SECONDS, DriverActor
from flambeau.version import __version__

SCRIPT = Path(__file__).parent / "scripts" / "ray_client.py"
SECONDS = 240.0


def start(nodes: Nodes, folder: Path, epochs: int, scenario: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        **nodes.environment,
        "RAY_ADDRESS": f"ray://127.0.0.2:{nodes.client_port}",
        "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",
    }
    command = [sys.executable, str(SCRIPT), str(folder), str(epochs), scenario]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=SECONDS)
    return output


def server_logs(nodes: Nodes) -> str:
    """What Ray's processes for clients have printed."""
    logs = nodes.folder.glob("session_latest/logs/ray_client_server*")
    return "".join(f"== {path.name}\n{path.read_text()}" for path in sorted(logs))


def await_begin(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "begun" in line:
            return
    raise AssertionError("".join(seen))


def driving() -> list[psutil.Process]:
    """The processes that drive jobs for clients."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "flambeau.driver.elsewhere_process" in (process.info["cmdline"] or [])
    ]


def saved_step(folder: Path) -> int:
    """The step of the last checkpoint that is complete."""
    steps = (path.parent.name for path in folder.rglob("step-*/manifest.json"))
    return max((int(name.removeprefix("step-")) for name in steps), default=0)


def test_a_client_trains_evaluates_predicts_and_fetches_all_files(
    two_rays: Nodes, tmp_path: Path
) -> None:
    process = start(two_rays, tmp_path, 4, "quick")
    output = finish(process)
    assert process.returncode == 0, output + server_logs(two_rays)
    assert "finished at step 8" in output, output  # the progress of the process on the head node
    found = re.search(r"^step 8 accuracy ([\d.]+)$", output, re.MULTILINE)
    assert found, output
    assert "model torch.Size([1, 2])" in output, output
    assert f"evaluated {found[1]}" in output, output
    assert "predicted 400" in output, output
    assert "ran [5, 5]" in output, output
    assert re.search(r"^failed worker \d failed .*True$", output, re.MULTILINE), output
    assert {"events.jsonl", "report.json", "checkpoints"} <= set(os.listdir(tmp_path / "run"))
    assert list((tmp_path / "scores").glob("*.parquet"))
    assert not list((tmp_path / "head").rglob("*")), "files are left on the head node"
    assert not driving()


def test_a_client_tries_again_if_ray_has_found_a_zombie() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    _await(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
    try:
        psutil.Process(ended.pid).cmdline()  # what Ray asks of the process that it has started
    except psutil.ZombieProcess:
        told = f"Initialization failure from server:\n{traceback.format_exc()}"
    ended.wait()
    assert server_failed(ConnectionAbortedError(told))
    assert not server_failed(ConnectionAbortedError("Initialization failure from server:\n..."))


def test_outcomes_that_no_client_has_read_are_removed_later(tmp_path: Path) -> None:
    for name, age in (("lost", 2 * OUTCOME_SECONDS), ("new", 0.0)):
        outcome = tmp_path / name / OUTCOME
        outcome.parent.mkdir()
        outcome.touch()
        os.utime(outcome, (time.time() - age,) * 2)
    (tmp_path / "run" / OUTCOME).mkdir(parents=True)  # the name of a run directory
    os.utime(tmp_path / "run" / OUTCOME, (0, 0))
    DriverActor(__version__, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["new", "run"]


def test_ctrl_c_of_a_client_saves_and_a_lost_client_leaves_nothing_but_its_run(
    two_rays: Nodes, tmp_path: Path, still_running: Callable[[], dict[int, str]]
) -> None:
    first = start(two_rays, tmp_path, 40, "slow")
    await_begin(first)
    first.send_signal(signal.SIGINT)
    output = finish(first)
    assert first.returncode != 0, output
    told = f"KeyboardInterrupt: stopped at step .* with run_dir={str(tmp_path / 'run')!r} to resume"
    assert re.search(told, output), output
    stopped = saved_step(tmp_path / "run")
    assert stopped >= 6

    lost = start(two_rays, tmp_path, 40, "slow")
    _await(lambda: saved_step(tmp_path / "head") > stopped)
    lost.kill()
    lost.communicate()
    _await(lambda: not driving())
    assert not still_running()  # a worker may just have saved a further step
    reached = saved_step(tmp_path / "head")

    last = start(two_rays, tmp_path, (reached + 4) // 2, "slow")
    output = finish(last)
    assert last.returncode == 0, output
    assert f"resuming from step {reached}" in output, output
    assert not list((tmp_path / "head").rglob("*"))


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
