"""A cluster of several hosts on one machine: real agent processes on loopback addresses.

What happens to hosts happens to these: an agent can be killed, and a host can vanish silently: a
SIGSTOP of its agent and of everything that it has started.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psutil

from flambeau.clusters.agent_process import AgentOrder
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.child_process import write_message
from flambeau.clusters.process_starter import FORK_SERVER_MODULE
from flambeau.clusters.registry import register
from flambeau.config import RemoteCluster

END_SECONDS = 10.0


class Hosts(RemoteCluster):
    """Hosts with the addresses 127.0.0.2, 127.0.0.3 and so on: one for each worker, or `agents`."""

    agents: int | None = None


class HostCluster(Cluster):
    """Starts agents; one that is replaced gets a host of its own."""

    coordinator_host = "127.0.0.1"
    replaces_single_agents = True
    current: ClassVar["HostCluster"]

    def __init__(self, settings: Hosts, frames: Mapping[str, Any]) -> None:
        self.agents = settings.agents or settings.workers
        self.patience = settings.start_timeout
        self._launch: Launch | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._gone: list[psutil.Process] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._folders: dict[str, str] = {}
        self._hosts = 2
        self.restarted: list[list[int]] = []
        type(self).current = self

    def start(self, launch: Launch) -> None:
        self._launch = launch
        for agent in range(self.agents):
            self._start(agent)

    def _start(self, agent: int) -> None:
        host, self._hosts = f"127.0.0.{self._hosts}", self._hosts + 1
        command = [sys.executable, "-m", "flambeau.clusters.agent"]
        # Each host has temporary files of its own, and a fork server that later jobs use again.
        self._folders[host] = tempfile.mkdtemp(prefix=f"{host}-")
        environment = {**os.environ, "TMPDIR": self._folders[host], **_runtime(host)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        assert self._launch is not None
        order = AgentOrder(self._launch, agent, host, machine=host)
        write_message(process.stdin.fileno(), order)
        self._processes[agent] = process
        self._started.append(process)

    def poll(self) -> list[AgentEnded]:
        ended = {n: p for n, p in self._processes.items() if p.poll() is not None}
        for agent in ended:
            del self._processes[agent]
        return [AgentEnded(f"exit code {p.returncode}", agent) for agent, p in ended.items()]

    def restart(self, agents: Sequence[int]) -> None:
        self.restarted.append(list(agents))
        for agent in agents:
            old = self._processes.pop(agent, None)
            if old is not None:  # it does not answer, and nor does its host
                self._gone += self._host_of(old)
            self._start(agent)

    def stop(self) -> None:
        for process in self._processes.values():
            try:
                process.wait(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                self._gone += self._host_of(process)
        # As if their power had been cut.
        for gone in self._gone:
            with contextlib.suppress(psutil.NoSuchProcess):
                gone.kill()
        for process in self._started:
            process.wait(timeout=END_SECONDS)
            assert process.stdin is not None
            process.stdin.close()
        folders = set(self._folders.values())
        ended = [each for each in _with("TMPDIR", folders) if not _is_kept(each)]
        _, left = psutil.wait_procs(ended, timeout=END_SECONDS)
        assert not left, "processes still run"
        for folder in folders:
            shutil.rmtree(folder)

    # What tests do

    def kill(self, agent: int) -> None:
        """Kill an agent, but nothing that it has started."""
        os.kill(self._processes[agent].pid, signal.SIGKILL)

    def freeze(self, agent: int) -> None:
        """Let a host vanish without a word."""
        for process in self._host_of(self._processes[agent]):
            process.suspend()

    def _host_of(self, agent: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """All processes of an agent's host."""
        folder = psutil.Process(agent.pid).environ()["XDG_RUNTIME_DIR"]
        return _with("XDG_RUNTIME_DIR", {folder})


def _runtime(host: str) -> dict[str, str]:
    folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], host)
    os.makedirs(folder, exist_ok=True)
    return {"XDG_RUNTIME_DIR": folder}


def _with(variable: str, values: set[str]) -> list[psutil.Process]:
    """The processes that were started with a variable of the environment."""
    processes = psutil.process_iter(["environ"])
    return [each for each in processes if (each.info["environ"] or {}).get(variable) in values]


def _is_kept(process: psutil.Process) -> bool:
    """Whether it is a fork server, and not one of its forks, which look alike."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        above = [] if parent is None else parent.cmdline()
        return FORK_SERVER_MODULE in process.cmdline() and FORK_SERVER_MODULE not in above
    return False


register(Hosts, f"{__name__}:HostCluster")
