"""An agent as a process of its own: `python -m flambeau.clusters.agent [DESCRIPTOR]`.

It is given its `AgentOrder` over standard input, or another descriptor, and serves until the
coordinator has it shut down. The pipe stays open as its lifeline: when it ends, the process that
has started the agent is gone, and the agent ends its roles and itself.
"""

import contextlib
import os
import sys
from collections.abc import Sequence

import msgspec

from flambeau.clusters import outside_signals
from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import Launch, adapted
from flambeau.clusters.child_process import read_message
from flambeau.clusters.interfaces import host_of, local_address
from flambeau.clusters.machine import fork_siblings, machine_identity
from flambeau.errors import ConfigError, FlambeauError, MissingDependencyError
from flambeau.version import __version__


class _Sender(msgspec.Struct, frozen=True):
    """What orders of all versions have."""

    version: str


class AgentOrder(msgspec.Struct, frozen=True):
    """What an agent process is sent by `write_message`.

    `host` is the address of its machine to announce; None: the one that leads to the coordinator.
    `machine` is for launchers that know better than the kernel which agents are on one machine.
    """

    launch: Launch
    agent: int
    host: str | None = None
    machine: str | None = None
    version: str = __version__


def main(arguments: Sequence[str]) -> int:
    """Be an agent; the exit code of the process."""
    outside_signals.withstand()
    pipe = int(arguments[0]) if arguments else sys.stdin.fileno()
    os.set_inheritable(pipe, False)
    try:
        _serve(read_order(pipe), pipe)
    except (FlambeauError, OSError) as error:
        sys.stderr.write(f"error: this agent has ended: {error}\n")
        return 1
    return 0


def read_order(pipe: int) -> AgentOrder:
    """Return the order that arrives over a pipe."""
    try:
        data = read_message(pipe)
        version = msgspec.msgpack.decode(data, type=_Sender).version
        if version != __version__:
            raise MissingDependencyError(
                f"Flambeau {__version__} is installed here, and {version} where the job was "
                "started: install the same version"
            )
        return msgspec.msgpack.decode(data, type=AgentOrder)
    except (EOFError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"its input holds no launch of a job ({error}); agents are started by a cluster of "
            "fb.fit or fb.run, not by hand"
        ) from None


def _serve(order: AgentOrder, pipe: int) -> None:
    machine = order.machine or machine_identity()
    siblings = fork_siblings(machine, order.launch.coordinator)
    launch = msgspec.structs.replace(adapted(order.launch), siblings=siblings)
    host = order.host or local_address(host_of(launch.coordinator))
    with contextlib.chdir(launch.folder):
        agent_main(launch, order.agent, host, machine=machine, lifeline=pipe)
