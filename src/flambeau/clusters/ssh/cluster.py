"""Agents on hosts that are reached by ssh."""

import contextlib
import itertools
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, final

from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.clusters.ssh.connection import AT_ONCE
from flambeau.clusters.ssh.connections import Connections
from flambeau.clusters.ssh.host_link import HostLink, HostLostError
from flambeau.clusters.ssh.host_messages import BEAT_SECONDS, AgentExited
from flambeau.clusters.ssh.problems import Problem, last_line
from flambeau.clusters.ssh.slots import Slots
from flambeau.config import Ssh
from flambeau.config.host_file import read_hosts
from flambeau.config.plural import number_of
from flambeau.errors import ConfigError, UserError

STOP_SECONDS = 60.0


@final
class SshCluster(Cluster):
    """One agent for each worker, on the slots of hosts; free slots replace lost ones.

    Slow work runs in threads; `poll` takes the next steps when they are done.
    """

    place_name = "node"
    pins_cores = True
    replaces_single_agents = True

    def __init__(self, settings: Ssh, frames: Mapping[str, Any]) -> None:
        hosts = read_hosts(settings.hosts)
        self.agents, self.patience = settings.workers, settings.start_timeout
        self._room = {host.name: host.slots or 1 for host in hosts}
        self._slots = Slots(hosts, self.agents)
        python = settings.python or sys.executable
        self._hosts = Connections(settings, list(self._room), python)
        self.coordinator_host = self._hosts.routes.driver
        self._launch: Launch | None = None
        self._threads = ThreadPoolExecutor(AT_ONCE, "flambeau-ssh-start")
        #: Work in threads, with the callback for its result.
        self._work: list[tuple[Future[Any], Callable[[Any], None]]] = []
        self._numbers = itertools.count(1)
        #: The agent of each start that has not ended, and the last host of each agent.
        self._running: dict[int, int] = {}
        self._last: dict[int, str] = {}
        #: Agents without a slot, by the lost host that is being reconnected for them.
        self._waiting: dict[str, list[int]] = {}
        self._ended: list[AgentEnded] = []
        self._beat = time.monotonic()

    def start(self, launch: Launch) -> None:
        """Start all agents, with one thread for each host."""
        self._launch = launch
        for host, agents in self._slots.used.items():
            self._start(host, agents)

    def restart(self, agents: Sequence[int]) -> None:
        """Start agents again on the same hosts, or on free slots if their hosts are lost."""
        for agent in agents:
            host = self._slots.host_of(agent)
            if host is None:
                self._place(agent)
            else:
                self._do(partial(self._hosts.answers, host), partial(self._revive, agent, host))

    def poll(self) -> list[AgentEnded]:
        """Return the agents that have ended, alone or with their hosts, or that have no slot."""
        now = time.monotonic()
        if now - self._beat > BEAT_SECONDS:
            self._beat = now
            self._hosts.beat()
        done = [item for item in self._work if item[0].done()]
        self._work = [item for item in self._work if item not in done]
        for future, then in done:
            then(future.result())
        self._read_news()
        ended, self._ended = self._ended, []
        return ended

    def places(self) -> dict[str, dict[str, Any]]:
        """Return the agents of each host, and how it reaches this process (see `Cluster`)."""
        ways = {True: "through ssh", False: "directly"}
        return {
            host: {"agents": agents, "reaches_driver": ways[host in self._hosts.routes.tunnelled]}
            for host, agents in self._slots.used.items()
        }

    def describe(self, agent: int, host: str) -> str:
        """Return the name of an agent, with its host as the user has named it."""
        return f"agent {agent} on {self._last.get(agent, host)}"

    def late(self, missing: Sequence[int]) -> UserError:
        """Return the error for agents that have not joined, although their hosts had replied."""
        hosts = ", ".join(dict.fromkeys(self._last.get(agent, "no host") for agent in missing))
        return ConfigError(
            f"{number_of(len(missing), 'agent')} of {self.agents} ({hosts}) did not join within "
            f"{self.patience:.0f} s. Loading Python from a slow disk may take longer: give "
            "Ssh(start_timeout=...)"
        )

    def stop(self) -> None:
        """Wait for the agents, which have received shutdown requests; close all connections."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        deadline = time.monotonic() + STOP_SECONDS
        while self._running and time.monotonic() < deadline:
            self._read_news(seconds=max(0.0, deadline - time.monotonic()))
        self._hosts.close()

    # Agents that start

    def _do(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._work.append((self._threads.submit(work), then))

    def _start(self, host: str, agents: Sequence[int]) -> None:
        starts = {next(self._numbers): agent for agent in agents}
        for start, agent in starts.items():
            self._running = {s: a for s, a in self._running.items() if a != agent} | {start: agent}
            self._last[agent] = host
        self._do(partial(self._send_starts, host, starts), lambda _: None)

    def _send_starts(self, host: str, starts: Mapping[int, int]) -> None:
        assert self._launch is not None
        try:
            for start, agent in starts.items():
                self._hosts.start_agent(host, start, self._launch, agent)
        except HostLostError:
            return  # the end of the connection is reported separately

    # Agents that are lost

    def _revive(self, agent: int, host: str, there: bool) -> None:
        """Start an agent again on its host if that has replied, otherwise elsewhere."""
        if not there:
            self._lose(host, "it does not answer", but=agent)
            self._hosts.drop(host)
        self._place(agent)

    def _place(self, agent: int) -> None:
        """Start an agent where there is a slot; if there is none, reconnect to its last host."""
        host = self._slots.place(agent)
        if host is not None:
            self._start(host, [agent])
            return
        lost = self._last[agent]
        self._waiting.setdefault(lost, []).append(agent)
        if len(self._waiting[lost]) == 1:
            self._do(partial(self._hosts.reconnect, lost), partial(self._reconnected, lost))

    def _reconnected(self, host: str, problem: Problem | None) -> None:
        agents = self._waiting.pop(host)
        if problem is None:
            self._slots.add(host, self._room[host])
            for agent in agents:
                self._place(agent)
            return
        reason = f"{host} is lost ({problem.text}), and no other host has a free slot"
        self._ended += [AgentEnded(reason, agent, host, replaceable=False) for agent in agents]

    def _lose(self, host: str, reason: str, *, but: int | None = None) -> None:
        """Remove a host and report the end of its agents, except `but`, which was reported."""
        agents = self._slots.lose(host)
        self._running = {s: a for s, a in self._running.items() if a not in agents}
        self._ended += [AgentEnded(reason, agent, host) for agent in agents if agent != but]

    def _read_news(self, seconds: float = 0.0) -> None:
        """Process all reports of hosts, after waiting at most `seconds` for the first one."""
        with contextlib.suppress(queue.Empty):
            self._heed(*self._hosts.news.get(block=seconds > 0, timeout=seconds or None))
            while True:
                self._heed(*self._hosts.news.get_nowait())

    def _heed(self, link: HostLink, message: AgentExited | None) -> None:
        if not self._hosts.is_current(link):
            return
        if message is None:
            self._lose(link.host, link.reason)
            return
        agent = self._running.pop(message.start, None)
        if agent is not None:
            said = last_line(message.errors)
            reason = f"exit code {message.code}{f' ({said})' if said else ''}"
            self._ended.append(AgentEnded(reason, agent, link.host))
