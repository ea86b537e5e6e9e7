"""The assignment of agents to hosts, without side effects."""

from collections.abc import Sequence
from typing import final

from flambeau.config.host_file import Host


@final
class Slots:
    """Slots for agents on hosts, filled host by host in the order of the list.

    Each agent has one slot, and keeps it until its host is lost.
    """

    def __init__(self, hosts: Sequence[Host], agents: int) -> None:
        self._free = {host.name: host.slots or 1 for host in hosts}
        self._places: dict[int, str] = {}
        for agent in range(agents):
            assert self.place(agent) is not None, "more agents than slots"

    def place(self, agent: int) -> str | None:
        """Return the host on which to start an agent: its own, unless that was lost.

        Otherwise the first with a free slot; None if there is none, and the agent gets no slot.
        """
        if agent in self._places:
            return self._places[agent]
        host = next((name for name, count in self._free.items() if count), None)
        if host is not None:
            self._free[host] -= 1
            self._places[agent] = host
        return host

    def lose(self, host: str) -> list[int]:
        """Remove a host; return the agents that had slots there, and have none now."""
        self._free.pop(host, None)
        agents = self.on(host)
        for agent in agents:
            del self._places[agent]
        return agents

    def add(self, host: str, slots: int) -> None:
        """Add a host that is available again, with all slots free."""
        self._free[host] = slots

    def host_of(self, agent: int) -> str | None:
        """Return the host of an agent; None if it has no slot."""
        return self._places.get(agent)

    def on(self, host: str) -> list[int]:
        """Return the agents on a host."""
        return [agent for agent, place in self._places.items() if place == host]

    @property
    def used(self) -> dict[str, list[int]]:
        """Agents by host, for hosts that have any."""
        used: dict[str, list[int]] = {}
        for agent, host in sorted(self._places.items()):
            used.setdefault(host, []).append(agent)
        return used
