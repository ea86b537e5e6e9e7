"""The interface between Flambeau and the engine that starts its processes."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flambeau.config.plural import number_of
from flambeau.coordination.payloads import Payload
from flambeau.errors import ConfigError, UserError


class Launch(msgspec.Struct, frozen=True):
    """Settings that every agent of a job receives over the engine's own channel.

    `module` is run with `python -m` for each role; only that module uses `payload` and the
    inherited file descriptors `fds`. The modules in `preload` are imported once for all roles of a
    machine, where roles can be forked.
    """

    coordinator: str
    secret: bytes
    module: str
    payload: Payload
    fds: tuple[int, ...] = ()
    preload: tuple[str, ...] = ()
    threads_per_worker: int | None = None
    #: Token in the driver's run directory: an agent that can read it sees the same directory.
    token: str = ""
    #: The folder in which agents that do not see the run directory create their own.
    mirrors: str | None = None
    #: The largest checkpoint, in bytes, that is sent in messages.
    carry_bytes: int = 0
    #: The URL of a folder through which larger ones are transferred.
    depot: str | None = None
    #: Common name of the agents of a machine that share a fork server; empty: each has its own.
    siblings: str = ""
    #: Whether workers of one machine have its cores to themselves.
    pinned: bool = True
    #: Whether cores and threads of workers are set at all.
    affinity: bool = True
    threads_per_core: int = 1
    #: The folder to which the user's paths are relative.
    folder: str = msgspec.field(default_factory=os.getcwd)
    python: str = sys.executable
    python_path: tuple[str, ...] = msgspec.field(
        default_factory=lambda: tuple(os.path.abspath(path) for path in sys.path)
    )


def adapted(launch: Launch) -> Launch:
    """Return a launch from another machine, adapted to this machine and its Python.

    Folders of the driver that do not exist here are left out.
    """
    folders = filter(os.path.isdir, launch.python_path)
    return msgspec.structs.replace(
        launch,
        python=sys.executable,
        python_path=(*sys.path, *folders),
        folder=launch.folder if os.path.isdir(launch.folder) else os.getcwd(),
    )


@dataclass(frozen=True)
class AgentEnded:
    """The unexpected end of an agent.

    `agent` is None where the engine does not report which one ended, and `place` is the engine's
    name for what it ran on. Where single agents cannot be replaced, all of them end together. An
    agent that is not `replaceable` has no place left on which a replacement could start.
    """

    reason: str
    agent: int | None = None
    place: str | None = None
    replaceable: bool = True


class Cluster(ABC):
    """Base class of clusters, which place agents and replace lost ones."""

    #: The number of agents that `start` starts.
    agents: int
    #: The address of this machine at which agents and roles connect to the coordinator.
    coordinator_host: str
    #: Whether a lost agent can be replaced while the others stay; if not, all are restarted.
    replaces_single_agents: bool = False
    #: Whether lost agents can be replaced at all; if not, the job fails.
    replaces_agents: bool = True
    #: Whether agents receive rows of the engine's data, which they report after they have joined.
    brings_rows: bool = False
    #: Whether workers of one machine have its cores to themselves.
    pins_cores: bool = False
    #: Seconds after a signal in which further signals count as repetitions of it.
    signal_repeats_seconds: float = 0.0
    #: The word that events use for a place on which agents run.
    place_name: str = "place"
    #: Seconds that agents have to join, and that a replacement has to join.
    patience: float = 120.0

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Start all agents; return at once."""

    @abstractmethod
    def poll(self) -> list[AgentEnded]:
        """Return the agents that have ended unexpectedly since the last call.

        Raise `UserError` for what the user has to correct.
        """

    @abstractmethod
    def restart(self, agents: Sequence[int]) -> None:
        """Start replacements for these agents, which may still be running; return at once.

        A cluster that cannot replace single agents receives all of them.
        """

    @property
    def ended(self) -> bool:
        """Whether no agent is running or will join."""
        return False

    def describe(self, agent: int, host: str) -> str:
        """Return a readable name of an agent that was on a host."""
        return f"agent {agent} on {host}"

    def places(self) -> dict[str, dict[str, Any]]:
        """Return details of the places that agents run on, by name, for the report."""
        return {}

    def late(self, missing: Sequence[int]) -> UserError:
        """Return the error to raise when agents have not joined in time."""
        names = ", ".join(map(str, missing))
        return ConfigError(
            f"{number_of(len(missing), 'agent')} of {self.agents} ({names}) did not join within "
            f"{self.patience:.0f} s. Either they were not started, or they cannot reach this "
            f"process at {self.coordinator_host}"
        )

    @abstractmethod
    def stop(self) -> None:
        """End all agents that are still running, and wait for them."""
