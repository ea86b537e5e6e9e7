"""The seam between Flambeau and whatever starts processes."""

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
    """What every agent of a job is given, over the engine's own channel.

    `module` is run with `python -m` for each role; `payload` and the inherited file descriptors
    `fds` are for that module alone. Modules of `preload` are imported once for all
    roles of a machine, where roles can be forked.
    """

    coordinator: str
    secret: bytes
    module: str
    payload: Payload
    fds: tuple[int, ...] = ()
    preload: tuple[str, ...] = ()
    threads_per_worker: int | None = None
    #: What the driver has written into the run directory, for agents to see whether it is theirs.
    token: str = ""
    #: Where agents that do not see it make their own; bytes of a checkpoint that may travel.
    mirrors: str | None = None
    carry_bytes: int = 0
    #: The URL of a folder by way of which larger ones travel.
    depot: str | None = None
    #: What all agents of this machine know that load libraries together; nothing: each its own.
    siblings: str = ""
    #: Whether workers of one machine have its cores to themselves.
    pinned: bool = True
    #: Whether cores and threads of workers are set at all.
    affinity: bool = True
    threads_per_core: int = 1
    #: Where relative paths of the user's begin.
    folder: str = msgspec.field(default_factory=os.getcwd)
    python: str = sys.executable
    python_path: tuple[str, ...] = msgspec.field(
        default_factory=lambda: tuple(os.path.abspath(path) for path in sys.path)
    )


def adapted(launch: Launch) -> Launch:
    """Return a launch of another machine as it is used here, with this Python.

    Folders of the driver that are not here are left out.
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
    """The end of an agent before its time.

    `agent` is None where the engine does not say which one, and `place` is the engine's name of
    what it ran on. Where single agents cannot be replaced, all of them end together. An agent that
    is not `replaceable` has no place left: nothing can be started instead of it.
    """

    reason: str
    agent: int | None = None
    place: str | None = None
    replaceable: bool = True


class Cluster(ABC):
    """Places agents, and replaces those that are lost."""

    #: How many agents `start` will start.
    agents: int
    #: Where agents and roles find the coordinator: an address of this machine.
    coordinator_host: str
    #: Whether a lost agent can be replaced while the others stay; if not, all are started again.
    replaces_single_agents: bool = False
    #: Whether lost agents can be replaced at all; if not, the job fails.
    replaces_agents: bool = True
    #: Whether agents bring rows of the engine's own data, which they report after they have joined.
    brings_rows: bool = False
    #: Whether workers of one machine have its cores to themselves.
    pins_cores: bool = False
    #: For how long after the first signal others repeat it.
    signal_repeats_seconds: float = 0.0
    #: What a place is called that agents run on, in events.
    place_name: str = "place"
    #: How many seconds agents have to join, and one that is replaced to come back.
    patience: float = 120.0

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Start all agents; returns at once."""

    @abstractmethod
    def poll(self) -> list[AgentEnded]:
        """Return which agents have ended before their time since the last call.

        Raises what is the user's to mend.
        """

    @abstractmethod
    def restart(self, agents: Sequence[int]) -> None:
        """Start others in the place of these (which may still be there); returns at once.

        A cluster that cannot replace single agents is given all of them.
        """

    @property
    def ended(self) -> bool:
        """Whether no agent will come (any more)."""
        return False

    def describe(self, agent: int, host: str) -> str:
        """Name an agent that was on a host, for people."""
        return f"agent {agent} on {host}"

    def places(self) -> dict[str, dict[str, Any]]:
        """Return what people may want to know of the places of agents, by name, for the report."""
        return {}

    def late(self, missing: Sequence[int]) -> UserError:
        """Return what to tell the user when agents have not joined in time."""
        names = ", ".join(map(str, missing))
        return ConfigError(
            f"{number_of(len(missing), 'agent')} of {self.agents} ({names}) did not join within "
            f"{self.patience:.0f} s. Either they were not started, or they cannot reach this "
            f"process at {self.coordinator_host}"
        )

    @abstractmethod
    def stop(self) -> None:
        """End all agents that are still there, and wait for them."""
