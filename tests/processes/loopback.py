"""A cluster of several agents on this machine that inherit nothing of the driver."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.registry import register
from flambeau.config import RemoteCluster

HOST = "127.0.0.1"


class Loopback(RemoteCluster):
    """One agent for each worker, in a thread each."""


class LoopbackCluster(Cluster):
    coordinator_host = HOST

    def __init__(self, settings: Loopback, frames: Mapping[str, Any]) -> None:
        self.agents = settings.workers
        self._launch: Launch | None = None
        self._threads: list[threading.Thread] = []
        self._ended: list[AgentEnded] = []

    def start(self, launch: Launch) -> None:
        self._launch = launch
        self.restart(range(self.agents))

    def restart(self, agents: Sequence[int]) -> None:
        for agent in agents:
            thread = threading.Thread(target=self._serve, args=(agent,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def poll(self) -> list[AgentEnded]:
        ended, self._ended = self._ended, []
        return ended

    @property
    def ended(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        for thread in self._threads:
            thread.join(timeout=60)
        assert self.ended

    def _serve(self, agent: int) -> None:
        assert self._launch is not None
        try:
            agent_main(self._launch, agent, HOST)
        except Exception as error:  # noqa: BLE001 - handed to the driver by poll()
            self._ended.append(AgentEnded(f"{type(error).__name__}: {error}", agent))


register(Loopback, f"{__name__}:LoopbackCluster")
