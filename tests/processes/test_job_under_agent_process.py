"""A job whose agent is a process of its own, given its launch over standard input."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import final

import cloudpickle

from flambeau.clusters.agent_process import AgentOrder
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.child_process import write_message
from flambeau.config import Recovery
from flambeau.coordination.payloads import FunctionValue
from flambeau.coordination.roles import Role
from flambeau.driver.control.controller import Controller
from flambeau.driver.launching import CHILD_MODULE
from flambeau.driver.topology import Topology
from flambeau.observe import display


@final
class OneProcess(Cluster):
    """A cluster of one agent, which is a process."""

    agents = 1
    coordinator_host = "127.0.0.1"

    def start(self, launch: Launch) -> None:
        command = [sys.executable, "-m", "flambeau.clusters.agent"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert self.process.stdin is not None
        write_message(self.process.stdin.fileno(), AgentOrder(launch, 0))

    def poll(self) -> list[AgentEnded]:
        return []

    def restart(self, agents: Sequence[int]) -> None:
        raise AssertionError("the agent does not end")

    def stop(self) -> None:
        self.process.wait(timeout=60)  # the end of its input would end it before its time
        assert self.process.stdin is not None
        self.process.stdin.close()


def processes() -> list[int]:
    return [os.getpid(), os.getppid()]


def test_a_function_runs_under_an_agent_process() -> None:
    cluster, observer = OneProcess(), display("lines", every_seconds=5.0)
    topology = Topology(2, Role.FUNCTION)
    controller = Controller(topology, cluster, observer, Recovery(), graceful=False)
    payload = FunctionValue(cloudpickle.dumps((processes, (), {})))
    outcome = controller.run(Launch(controller.address, controller.secret, CHILD_MODULE, payload))
    observer.close()
    assert outcome.failure is None
    assert cluster.process.returncode == 0
    results = [pickle.loads(outcome.summaries[rank]["result"]) for rank in (0, 1)]
    roles, (fork_server, other) = zip(*results, strict=True)
    assert len({*roles, cluster.process.pid, os.getpid()}) == 4
    assert fork_server == other
