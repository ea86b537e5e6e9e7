"""The connections of a job to all of its hosts."""

import os
import queue
import threading
from collections.abc import Sequence
from typing import final

import msgspec

from flambeau.clusters.agent_process import AgentOrder
from flambeau.clusters.base import Launch
from flambeau.clusters.interfaces import host_of
from flambeau.clusters.ssh.connection import SshProgram, on_all
from flambeau.clusters.ssh.host_link import HostLink, News
from flambeau.clusters.ssh.host_messages import StartAgent
from flambeau.clusters.ssh.problems import Problem, listed
from flambeau.clusters.ssh.routes import Routes, find_routes
from flambeau.clusters.ssh.tunnel import Tunnel
from flambeau.config import Ssh
from flambeau.errors import ConfigError

#: The share of `start_timeout` for the login and the hello of the process on the host.
HELLO_SHARE = 0.25


@final
class Connections:
    """Links to hosts, and tunnels for those that cannot reach the driver directly.

    Different threads may use different hosts at the same time.
    """

    def __init__(self, settings: Ssh, hosts: Sequence[str], python: str) -> None:
        """Connect to all hosts at once; raise `ConfigError` for those that cannot be used."""
        self._settings, self._python = settings, python
        self._ssh = SshProgram(settings.ssh)
        self.news: News = queue.SimpleQueue()
        self._links: dict[str, HostLink] = {}
        self._tunnels: dict[str, Tunnel] = {}
        self._lock = threading.Lock()
        try:
            self._greet(hosts)
            given, tunnel = settings.host, settings.tunnel
            self.routes: Routes = find_routes(self._links, given=given, tunnel=tunnel)
        except BaseException:
            self.close()
            raise

    def _greet(self, hosts: Sequence[str]) -> None:
        found = on_all(hosts, self._connect)
        problems = [each for each in found.values() if each is not None]
        if problems:
            raise ConfigError(listed(problems, len(hosts)))

    def _connect(self, host: str) -> Problem | None:
        link = HostLink(self._ssh, host, self._python, os.getcwd(), self.news)
        problem = link.greet(self._settings.start_timeout * HELLO_SHARE)
        with self._lock:
            self._links[host] = link
        return problem

    def reconnect(self, host: str) -> Problem | None:
        """Connect to a lost host again; return the problem if that is not possible."""
        self.drop(host)
        return self._connect(host)

    def is_current(self, link: HostLink) -> bool:
        """Return whether a link is the current connection to its host."""
        return self._links.get(link.host) is link

    def answers(self, host: str) -> bool:
        """Return whether a host replies."""
        return self._links[host].answers()

    def start_agent(self, host: str, start: int, launch: Launch, agent: int) -> None:
        """Send a host the request to start an agent; `start` is unique among all starts."""
        order = AgentOrder(
            msgspec.structs.replace(launch, coordinator=self._way(host, launch.coordinator)),
            agent,
            self.routes.addresses[host],
            machine=host,
        )
        self._links[host].send(StartAgent(start, order, self._settings.environment))

    def _way(self, host: str, coordinator: str) -> str:
        """Return the address at which a host reaches the coordinator."""
        if host not in self.routes.reasons:
            return coordinator
        if host not in self._tunnels:
            target = f"{host_of(coordinator)}:{coordinator.rpartition(':')[2]}"
            self._tunnels[host] = Tunnel(self._ssh, host, target)
        return self._tunnels[host].address()

    def beat(self) -> None:
        """Send a heartbeat to all hosts; drop those whose tunnel has ended."""
        for host, tunnel in list(self._tunnels.items()):
            if tunnel.ended:
                self.drop(host)
        for link in list(self._links.values()):
            link.beat()

    def drop(self, host: str) -> None:
        """Close the connection to a host at once."""
        tunnel = self._tunnels.pop(host, None)
        if tunnel is not None:
            tunnel.close()
        self._links[host].close(0)

    def close(self) -> None:
        """Close all connections, which ends all that still runs on the hosts."""
        on_all(self._links, lambda host: self._links[host].close())
        for tunnel in self._tunnels.values():
            tunnel.close()
        self._tunnels.clear()
