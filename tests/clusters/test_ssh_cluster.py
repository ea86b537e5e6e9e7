"""Jobs on real ssh hosts: what is checked first, how they are reached, and what is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import struck_jobs
from ray_toys import rows, starts
from sshd import SshHosts
from struck_jobs import EPOCHS, ROWS, events

import flambeau as fb
from flambeau.errors import ConfigError, WorkerLostError

HERE = Path(__file__).parent
NAMES = ("node1", "node2", "node3")
SECONDS = 60.0


@pytest.fixture
def hosts(ssh_hosts: SshHosts) -> Iterator[SshHosts]:
    """Three hosts, on which a test leaves no process, and of which it may kill any."""
    yield ssh_hosts
    for name in set(ssh_hosts.names) - set(NAMES):
        ssh_hosts.kill(name)
    eventually(lambda: not any(ssh_hosts.processes(name) for name in ssh_hosts.names))
    eventually(lambda: not ssh_hosts.clients())
    for name in set(NAMES) - set(ssh_hosts.names):
        ssh_hosts.start(name)


def eventually(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def fit(folder: Path, cluster: fb.Ssh, act: Callable[[], None], **more: Any) -> fb.Result:
    """Train; `act` when workers are in the midst of it, which wait for that."""
    return struck_jobs.fit(folder, cluster, act, until="acted", **more)


# Before anything starts


def test_all_hosts_that_cannot_be_used_are_named_with_what_helps(
    hosts: SshHosts, tmp_path: Path
) -> None:
    fake = "import flambeau.version\nflambeau.version.__version__ = '0.0.9'\n"
    (tmp_path / "sitecustomize.py").write_text(fake)
    hosts.start("node4", accepts_key=False)
    hosts.start("node5", lines=["ForceCommand sleep 600"])
    path = os.pathsep.join([str(tmp_path), hosts.environment["PYTHONPATH"]])
    hosts.start("node6", {"PYTHONPATH": path})
    names = ["node1", "node4", "node5", "node6", "node7"]
    cluster = fb.Ssh(names, ssh=hosts.ssh, start_timeout=40)
    with pytest.raises(ConfigError) as caught:
        fb.run(os.getpid, cluster=cluster)
    first, *lines = str(caught.value).splitlines()
    assert first == "4 of 5 hosts cannot be used:"
    denied, hanging, version, down = lines
    assert "node4: it accepts none of your keys. Run: " in denied
    assert "node5: no answer within 10 s: the login hangs" in hanging
    assert f"node6: it has Flambeau 0.0.9, this driver {fb.__version__}. Run: " in version
    assert f"node6 {sys.executable} -m pip install flambeau=={fb.__version__}" in version
    assert "node7: it refuses connections" in down


def test_a_python_that_hosts_lack_is_named(hosts: SshHosts) -> None:
    cluster = fb.Ssh(["node1", "node2"], ssh=hosts.ssh, python="/no/such/python")
    with pytest.raises(ConfigError, match="node2: there is no Python at /no/such/python"):
        fb.run(os.getpid, cluster=cluster)


def test_a_python_without_flambeau_is_named(hosts: SshHosts) -> None:
    hosts.start("node4", {"PYTHONPATH": ""})
    bare = f"{sys.base_prefix}/bin/python3"  # without the packages of this environment
    cluster = fb.Ssh(["node4"], ssh=hosts.ssh, python=bare)
    lack = rf"node4: its Python {bare} lacks Flambeau. Run: .* pip install flambeau=="
    with pytest.raises(ConfigError, match=lack):
        fb.run(os.getpid, cluster=cluster)


# How hosts are reached


def test_hosts_that_do_not_reach_the_driver_do_so_through_ssh_files_included(
    hosts: SshHosts, tmp_path: Path
) -> None:
    cluster = fb.Ssh(["node1 slots=1", "node2:1"], ssh=hosts.ssh, tunnel=True, shared_files=False)
    strategy = fb.ParameterServer(servers=2, consistency="synchronous")
    result = fit(tmp_path, cluster, lambda: None, strategy=strategy, epochs=1)
    assert result.report["places"] == {
        "node1": {"agents": [0], "reaches_driver": "through ssh"},
        "node2": {"agents": [1], "reaches_driver": "through ssh"},
    }
    assert events(tmp_path, "places")[0]["places"] == result.report["places"]
    assert list((tmp_path / "run" / "checkpoints").glob("step-*/manifest.json"))


def test_variables_and_the_working_folder_are_those_that_are_given(
    hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = fb.Ssh(["node3"], ssh=hosts.ssh, environment={"COLOUR": "blue green"})
    found = fb.run(lambda: (os.environ["COLOUR"], os.getcwd()), cluster=cluster)
    assert found == [("blue green", str(tmp_path))]


# What is lost


def test_a_lost_host_is_replaced_by_a_free_slot_and_all_continue_from_the_last_checkpoint(
    hosts: SshHosts, tmp_path: Path
) -> None:
    cluster = fb.Ssh(NAMES, ssh=hosts.ssh, workers=2)
    result = fit(tmp_path, cluster, lambda: hosts.kill("node2"), epochs=2)
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert result.report["rows"]["applied"] == ROWS * 2
    assert list(result.report["places"]) == ["node1", "node3"]
    assert {event["node"] for event in events(tmp_path, "worker_lost")} == {"node2"}
    assert {step for _, step in starts(tmp_path)[2:]} < {5, 10, 15, 20}


def test_a_host_that_falls_silent_is_replaced_by_a_free_slot(
    hosts: SshHosts, tmp_path: Path
) -> None:
    cluster = fb.Ssh(NAMES, ssh=hosts.ssh, workers=2)
    recovery = {"max_restarts": 1, "heartbeat_timeout": 5.0}
    try:
        result = fit(tmp_path, cluster, lambda: hosts.freeze("node2"), recovery=recovery)
    finally:
        hosts.kill("node2")
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert list(result.report["places"]) == ["node1", "node3"]


def test_a_killed_agent_starts_again_on_its_host(hosts: SshHosts, tmp_path: Path) -> None:
    def kill_agent() -> None:
        agents = [p for p in hosts.processes("node2") if "flambeau.clusters.agent" in p.cmdline()]
        agents[0].kill()

    cluster = fb.Ssh(["node1", "node2"], ssh=hosts.ssh)
    result = fit(tmp_path, cluster, kill_agent, epochs=2)
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert list(result.report["places"]) == ["node1", "node2"]


def test_a_lost_host_without_a_free_slot_ends_a_job_that_needs_it(
    hosts: SshHosts, tmp_path: Path
) -> None:
    cluster = fb.Ssh(["node1", "node2"], ssh=hosts.ssh)
    with pytest.raises(WorkerLostError, match=r"node2 is lost .* no other host has a free slot"):
        fit(tmp_path, cluster, lambda: hosts.kill("node2"), epochs=100)


def test_asynchronous_workers_continue_without_a_lost_host_and_its_servers_move(
    hosts: SshHosts, tmp_path: Path
) -> None:
    strategy = fb.ParameterServer(servers=2, consistency="asynchronous")
    cluster = fb.Ssh(["node1", "node2"], ssh=hosts.ssh)
    result = fit(
        tmp_path, cluster, lambda: hosts.kill("node1"), strategy=strategy, valid=rows(ROWS)
    )
    report = result.report
    assert (report["status"], report["workers_at_end"]) == ("finished", 1)
    assert list(report["places"]) == ["node2"]
    assert len(events(tmp_path, "generation")) == 1
    counts = report["rows"]
    assert counts["applied"] + counts["dropped"] + counts.get("lost", 0) == ROWS * EPOCHS
    assert events(tmp_path, "evaluation")[-1]["rows"] == ROWS


@pytest.mark.parametrize("tunnel", [None, True], ids=["directly", "through ssh"])
def test_a_killed_driver_leaves_nothing_on_any_host(
    hosts: SshHosts, tmp_path: Path, tunnel: bool | None
) -> None:
    words = [sys.executable, str(HERE / "scripts" / "ssh_fit.py"), str(tmp_path)]
    given = json.dumps({"hosts": hosts.names, "ssh": hosts.ssh, "tunnel": tunnel})
    driver = subprocess.Popen([*words, given], start_new_session=True)
    try:
        eventually(lambda: (tmp_path / "begun").exists() or driver.poll() is not None)
        assert driver.poll() is None
        assert all(hosts.processes(name) for name in hosts.names)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    eventually(lambda: not any(hosts.processes(name) for name in hosts.names))


# Commands


def test_a_script_runs_on_the_hosts_of_a_file(hosts: SshHosts, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("node1 slots=1 # the first\nnode2\n")
    (tmp_path / "show.py").write_text(
        "import os\nprint(os.environ['RANK'], os.environ['SSH_CONNECTION'])\n"
    )
    words = [sys.executable, "-m", "flambeau", "run", "--hosts", "hosts.txt", "show.py"]
    path = hosts.add_program(tmp_path)
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout + done.stderr
    for rank, address in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"{rank} 127.0.0.1 " in shown
        assert f" {address} {hosts.port}" in shown


def test_horovodrun_starts_ranks_on_hosts(hosts: SshHosts, tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text(
        "import os, torch, horovod.torch as hvd\nhvd.init()\n"
        "print(hvd.rank(), hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum).item(),"
        " os.environ['HOROVOD_CACHE_CAPACITY'], os.environ['SSH_CONNECTION'])\n"
    )
    words = [sys.executable, "-m", "flambeau", "horovodrun", "-np", "2", "-H", "node1:1,node2:2"]
    done = subprocess.run(
        [*words, "--cache-capacity", "99", "python", "sum.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": hosts.add_program(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout + done.stderr
    for rank, address in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"{rank} 3.0 99 127.0.0.1 " in shown
        assert f" {address} {hosts.port}" in shown
