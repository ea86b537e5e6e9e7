"""A cluster of the processes that a launcher started: all are agents, rank 0 is the driver."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from flambeau.clusters.agent_process import AgentOrder, be_agent
from flambeau.clusters.agent_thread import AgentThread
from flambeau.clusters.attached.meeting import Meeting
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Attached

PING_SECONDS = 1.0


@final
class AttachedCluster(Cluster):
    """An agent in a thread of this process (rank 0), and one in each of the other processes."""

    pins_cores = True
    replaces_agents = False
    signal_repeats_seconds = 3.0

    def __init__(self, settings: Attached, frames: Mapping[str, Any]) -> None:
        meeting: Meeting = settings.meeting
        self._meeting = meeting
        self.agents = meeting.identity.size
        self.coordinator_host = meeting.host
        self.patience = settings.start_timeout
        self._agent: AgentThread | None = None
        self._asked = time.monotonic()

    def start(self, launch: Launch) -> None:
        """Start an agent in every process."""
        for rank in range(1, self.agents):
            self._meeting.order(rank, launch)
        order = AgentOrder(launch, 0, host=self.coordinator_host)
        self._agent = AgentThread(partial(be_agent, order, job=self._meeting.identity.job))

    def poll(self) -> list[AgentEnded]:
        """Return the agents whose processes have ended."""
        ended = []
        reason = None if self._agent is None else self._agent.take_error()
        if reason is not None:
            ended.append(AgentEnded(reason, 0))
        if time.monotonic() - self._asked > PING_SECONDS:
            self._asked = time.monotonic()
            gone = "its process has ended, and a launcher starts no other"
            ended += [AgentEnded(gone, rank) for rank in self._meeting.gone()]
        return ended

    def restart(self, agents: Sequence[int]) -> None:
        """Raise an error: a launcher does not restart processes, so this is never called."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Return whether this process's own agent has ended before all others have joined."""
        return self._agent is None or self._agent.ended

    def describe(self, agent: int, host: str) -> str:
        """Return the name of an agent: its rank and node."""
        return f"rank {agent} on {self._meeting.node(agent)}"

    def stop(self) -> None:
        """Wait for this process's agent, which has received a shutdown request."""
        if self._agent is not None:
            self._agent.join()
