"""Workers on this machine: one agent, in a thread of the driver."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from flambeau.clusters.agent import agent_main
from flambeau.clusters.agent_thread import AgentThread
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Local

LOOPBACK = "127.0.0.1"


@final
class LocalCluster(Cluster):
    """A single agent that starts all roles on this machine; it has no data frames of its own."""

    agents = 1
    coordinator_host = LOOPBACK
    pins_cores = True

    def __init__(self, settings: Local, frames: Mapping[str, Any]) -> None:
        self._launch: Launch | None = None
        self._agent: AgentThread | None = None

    def start(self, launch: Launch) -> None:
        """Start the agent's thread."""
        self._launch = launch
        self._agent = AgentThread(partial(agent_main, launch, agent=0, host=LOOPBACK))

    def poll(self) -> list[AgentEnded]:
        """Return why the agent ended, if it did."""
        reason = None if self._agent is None else self._agent.take_error()
        return [] if reason is None else [AgentEnded(reason, 0)]

    def restart(self, agents: Sequence[int]) -> None:
        """Start another thread; the previous one has ended."""
        assert self._launch is not None
        self.start(self._launch)

    @property
    def ended(self) -> bool:
        """Whether the agent has ended."""
        return self._agent is None or self._agent.ended

    def stop(self) -> None:
        """Wait for the agent to end, after `Shutdown` was sent to it."""
        if self._agent is not None:
            self._agent.join()
