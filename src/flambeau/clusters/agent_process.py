"""An agent as a separate process: `python -m flambeau.clusters.agent [DESCRIPTOR]`.

It receives its `AgentOrder` over standard input, or another descriptor, and runs until the
coordinator shuts it down. The pipe stays open as its lifeline: when it closes, the process that
started the agent has ended, and the agent ends its roles and itself.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from flambeau.clusters import outside_signals
from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import Launch, adapted
from flambeau.clusters.child_process import read_message
from flambeau.clusters.interfaces import host_of, local_address
from flambeau.clusters.machine import fork_siblings, machine_identity
from flambeau.errors import ConfigError, FlambeauError, MissingDependencyError
from flambeau.version import __version__

if TYPE_CHECKING:
    from flambeau.clusters.spool import Spool

_NOT_BY_HAND = "agents are started by a cluster of fb.fit or fb.run, not by hand"


class _Sender(msgspec.Struct, frozen=True):
    """Fields that orders of all versions have."""

    version: str


class AgentOrder(msgspec.Struct, frozen=True):
    """The order that an agent process receives through `write_message`.

    `host` is the address of its machine to announce; None: the one that routes to the coordinator.
    `machine` is for launchers that know better than the kernel which agents are on one machine.
    """

    launch: Launch
    agent: int
    host: str | None = None
    machine: str | None = None
    version: str = __version__


def main(arguments: Sequence[str]) -> int:
    """Run an agent; return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m flambeau.clusters.agent", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("descriptor", type=int, nargs="?", default=0, help="0: standard input")
    pipe: int = parser.parse_args(arguments).descriptor
    try:
        _require_pipe(pipe)
        outside_signals.withstand()
        os.set_inheritable(pipe, False)
        be_agent(read_order(pipe), lifeline=pipe)
    except (FlambeauError, OSError) as error:
        sys.stderr.write(f"error: this agent has ended: {error}\n")
        return 1
    return 0


def read_order(pipe: int) -> AgentOrder:
    """Return the order that arrives over a pipe."""
    try:
        data = read_message(pipe)
    except (EOFError, msgspec.DecodeError) as error:
        raise _no_launch(error) from None
    return decode_order(data)


def decode_order(data: bytes) -> AgentOrder:
    """Decode an order from another process, which must have the same version."""
    try:
        version = msgspec.msgpack.decode(data, type=_Sender).version
        if version != __version__:
            raise MissingDependencyError(
                f"Flambeau {__version__} is installed here, and {version} where the job was "
                "started: install the same version"
            )
        return msgspec.msgpack.decode(data, type=AgentOrder)
    except msgspec.DecodeError as error:
        raise _no_launch(error) from None


def _no_launch(error: Exception) -> ConfigError:
    return ConfigError(f"its input holds no launch of a job ({error}); {_NOT_BY_HAND}")


def _require_pipe(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError as error:
        raise ConfigError(
            f"descriptor {descriptor} is not open ({error.strerror}); {_NOT_BY_HAND}"
        ) from None
    if os.isatty(descriptor):
        raise ConfigError(f"its input is a terminal; {_NOT_BY_HAND}")


def be_agent(
    order: AgentOrder,
    *,
    job: str | None = None,
    lifeline: int | None = None,
    fill: "Callable[[], Spool] | None" = None,
    shares: bool = True,
) -> None:
    """Run the agent of an order, in its folder; `fill` is that of `agent_main`.

    Agents with the same `job` name share a fork server on each machine; without a name, those of
    one coordinator do. An agent for which `shares` is false has its own.
    """
    machine = order.machine or machine_identity()
    siblings = fork_siblings(machine, job or order.launch.coordinator) if shares else ""
    launch = msgspec.structs.replace(adapted(order.launch), siblings=siblings)
    host = order.host or local_address(host_of(launch.coordinator))
    elsewhere = launch.folder != os.getcwd()
    with contextlib.chdir(launch.folder) if elsewhere else contextlib.nullcontext():
        agent_main(launch, order.agent, host, fill, machine=machine, lifeline=lifeline)
