"""What the controller makes of processes that end: their agent's word against their own."""

import threading
from collections.abc import Sequence
from typing import Any

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Recovery
from flambeau.coordination.file_messages import AgentJoined
from flambeau.coordination.payloads import ScriptPayload
from flambeau.coordination.protocol import (
    CODEC,
    RoleDone,
    RoleExited,
    RoleJoined,
    Shutdown,
    StartRoles,
)
from flambeau.coordination.roles import RoleSpec
from flambeau.driver.control.controller import Controller
from flambeau.driver.outcome import Outcome
from flambeau.driver.topology import Topology
from flambeau.messaging import Client
from flambeau.observe import Event, Observer

HOST = "127.0.0.1"


class Silent(Observer):
    def observe(self, event: Event) -> None:
        """Nobody watches."""

    def close(self) -> None:
        """Nothing to close."""


class OneWorker(Cluster):
    """An agent in a thread, whose only worker says `words` after the agent has told of its end."""

    agents = 1

    def __init__(self, words: bool) -> None:
        self._words = words
        self._thread: threading.Thread | None = None

    def start(self, launch: Launch) -> None:
        self._thread = threading.Thread(target=self._serve, args=(launch,))
        self._thread.start()

    coordinator_host = HOST

    def poll(self) -> list[AgentEnded]:
        return []

    def restart(self, agents: Sequence[int]) -> None:
        raise AssertionError("the agent does not end")

    def stop(self) -> None:
        assert self._thread is not None
        self._thread.join(timeout=10)

    def _serve(self, launch: Launch) -> None:
        agent: Client[Any] = Client(CODEC, launch.secret, launch.coordinator)
        agent.send(AgentJoined(0, HOST, "here", [0]))
        while True:
            received = agent.receive(10)
            assert received is not None
            if isinstance(received[0], StartRoles):
                self._end(agent, received[0].roles[0])
            elif isinstance(received[0], Shutdown):
                break
        agent.close()

    def _end(self, agent: Client[Any], spec: RoleSpec) -> None:
        agent.send(RoleJoined(spec, 1))
        agent.send(RoleExited(spec, 0))
        if self._words:
            agent.send(RoleDone(spec, "finished", {"answer": 42}))


def run(words: bool) -> Outcome:
    topology, cluster = Topology(1), OneWorker(words)
    controller = Controller(topology, cluster, Silent(), Recovery(), graceful=True)
    return controller.run(
        Launch(controller.address, controller.secret, "", ScriptPayload("none.py"))
    )


def test_a_worker_whose_last_words_come_after_its_end_is_done() -> None:
    outcome = run(words=True)
    assert outcome.failure is None
    assert outcome.summaries == {0: {"answer": 42}}


def test_a_worker_that_ends_without_a_word_has_failed() -> None:
    outcome = run(words=False)
    assert outcome.failure is not None
    assert outcome.failure.message == "worker 0 exited with code 0"
