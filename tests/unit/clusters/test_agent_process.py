"""Agents as processes of their own, with real roles."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from flambeau.clusters.agent_process import AgentOrder, main
from flambeau.clusters.base import Launch, adapted
from flambeau.clusters.child_process import write_message
from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.payloads import ScriptPayload
from flambeau.coordination.protocol import (
    CODEC,
    Messages,
    RoleExited,
    RoleOutput,
    Shutdown,
    StartRoles,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.messaging import Server, new_secret

#: A role that starts a process, and says which.
ROLE = """
import json, os, subprocess, sys, time
from flambeau.clusters.child_process import attach
child = attach(int(sys.argv[1]))
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
found = {"pids": [os.getpid(), below.pid], "program": child.payload.program, "folder": os.getcwd()}
print(json.dumps(found), flush=True)
time.sleep(600)
"""
SPEC = RoleSpec(Role.WORKER, rank=0, world=1, local_rank=0, local_world=1, node=4, generation=0)


class Started:
    """A real agent, and this process as its coordinator."""

    def __init__(self, folder: Path) -> None:
        self.server: Server[Messages] = Server(CODEC, secret := new_secret(), "127.0.0.1")
        python_path = (str(folder), "/no/such/folder")
        launch = Launch(self.server.address, secret, "a_role", ScriptPayload("mine.py"))
        self.launch = msgspec.structs.replace(
            launch, python="/no/such/python", python_path=python_path, folder=str(folder)
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flambeau.clusters.agent"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        )

    def order(self, **changes: Any) -> None:
        assert self.process.stdin is not None
        write_message(self.process.stdin.fileno(), AgentOrder(self.launch, 4, **changes))

    def receive(self, kind: type) -> Any:
        """The next message of a kind, and who has sent it."""
        while True:
            envelope = self.server.receive(30)
            assert envelope is not None, "nothing came"
            if isinstance(envelope.message, kind):
                return envelope.peer, envelope.message

    def start_role(self) -> tuple[bytes, dict[str, Any]]:
        peer, _ = self.receive(AgentJoined)
        self.server.send(peer, StartRoles([SPEC]))
        _, output = self.receive(RoleOutput)
        return peer, json.loads(output.lines[0])

    def end(self) -> tuple[int, str]:
        """The exit code and what it has written."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Started]:
    (tmp_path / "a_role.py").write_text(ROLE)
    agent = Started(tmp_path)
    yield agent
    agent.process.kill()
    agent.process.communicate()
    agent.server.close()


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes still run"
        time.sleep(0.01)


def below(agent: Started) -> list[int]:
    return [child.pid for child in psutil.Process(agent.process.pid).children(recursive=True)]


def test_it_serves_until_it_is_told_to_shut_down(agent: Started, tmp_path: Path) -> None:
    agent.order(host="127.0.0.3", machine="rack 7")
    peer, joined = agent.receive(AgentJoined)
    assert (joined.agent, joined.host, joined.machine) == (4, "127.0.0.3", "rack 7")
    agent.server.send(peer, StartRoles([SPEC]))
    _, output = agent.receive(RoleOutput)
    seen = json.loads(output.lines[0])
    assert (seen["program"], seen["folder"]) == ("mine.py", str(tmp_path))
    processes = below(agent)
    assert set(seen["pids"]) < set(processes)
    os.kill(agent.process.pid, signal.SIGTERM)  # which is meant for the driver
    agent.server.send(peer, Shutdown())
    assert agent.receive(RoleExited)[1].code == -signal.SIGKILL
    assert agent.end() == (0, "")
    wait_until_gone(processes)


def forked_by(agent: Started, machine: str) -> int | None:
    """The fork server of a role that an agent on this machine starts."""
    agent.order(machine=machine)
    _, seen = agent.start_role()
    return psutil.Process(seen["pids"][0]).ppid()


@pytest.mark.parametrize(("machines", "fork_servers"), [(["one", "one"], 1), (["one", "two"], 2)])
def test_agents_of_one_machine_share_a_fork_server(
    agent: Started, tmp_path: Path, machines: list[str], fork_servers: int
) -> None:
    second = Started(tmp_path)
    second.server.close()
    second.server, second.launch = agent.server, agent.launch
    try:
        found = [forked_by(each, at) for each, at in zip([agent, second], machines, strict=True)]
        assert len(set(found)) == fork_servers
    finally:
        second.process.kill()
        second.process.communicate()


def test_it_ends_with_all_it_started_when_its_input_ends(agent: Started) -> None:
    agent.order()
    agent.start_role()
    processes = below(agent)
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    agent.process.stdin = None
    message = "error: this agent has ended: the process that has started this agent is gone\n"
    assert agent.end() == (1, message)
    wait_until_gone(processes)


def test_all_it_started_ends_when_it_is_killed(agent: Started) -> None:
    agent.order()
    agent.start_role()
    processes = below(agent)
    agent.process.kill()
    assert agent.end() == (-signal.SIGKILL, "")
    wait_until_gone(processes)


def test_it_ends_with_one_line_when_the_coordinator_does(agent: Started) -> None:
    agent.order()
    agent.start_role()
    processes = below(agent)
    agent.server.close()
    assert agent.process.wait(timeout=60) == 1
    code, errors = agent.end()
    assert errors.startswith("error: this agent has ended: the coordinator is gone: ")
    assert (code, errors.count("\n")) == (1, 1)
    wait_until_gone(processes)


def test_another_version_is_refused(agent: Started) -> None:
    agent.order(version="0.0.1")
    code, errors = agent.end()
    assert "and 0.0.1 where the job was started: install the same version" in errors
    assert (code, errors.count("\n")) == (1, 1)


@pytest.mark.parametrize("given", ["", "hello, agent"])
def test_what_is_no_launch_is_refused(agent: Started, given: str) -> None:
    _, errors = agent.process.communicate(given, timeout=60)
    assert errors.startswith("error: this agent has ended: its input holds no launch of a job (")
    assert (agent.process.returncode, errors.count("\n")) == (1, 1)


def test_text_on_a_pipe_that_stays_open_is_refused(agent: Started) -> None:
    assert agent.process.stdin is not None
    agent.process.stdin.write("hello, agent")
    agent.process.stdin.flush()
    assert agent.process.wait(timeout=60) == 1
    _, errors = agent.end()
    assert "its input holds no launch of a job (it does not begin like a message)" in errors


def test_what_agents_are_given_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "An agent as a separate process" in capsys.readouterr().out
    closed = os.dup(0)
    os.close(closed)
    assert main([str(closed)]) == 1
    errors = capsys.readouterr().err
    assert f"descriptor {closed} is not open (Bad file descriptor); agents are started" in errors
    screen, terminal = os.openpty()
    assert main([str(terminal)]) == 1
    assert "its input is a terminal; agents are started by a cluster" in capsys.readouterr().err
    for descriptor in (screen, terminal):
        os.close(descriptor)


def test_a_launch_is_used_with_what_is_here(tmp_path: Path) -> None:
    launch = Launch(
        "tcp://10.0.0.1:5",
        b"secret",
        "mine",
        ScriptPayload("mine.py"),
        folder="/no/such/folder",
        python="/no/such/python",
        python_path=(str(tmp_path), "/no/such/folder"),
    )
    here = adapted(launch)
    assert (here.python, here.folder) == (sys.executable, os.getcwd())
    assert here.python_path == (*sys.path, str(tmp_path))
