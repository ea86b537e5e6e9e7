"""The seam between Flambeau and whatever starts processes."""

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from flambeau.errors import UserError


@dataclass(frozen=True)
class Launch:
    """What every agent of a job is given, over the engine's own channel.

    `module` is run with `python -m` for each role; `payload` (plain values) and the inherited file
    descriptors `fds` are for that module alone. Modules of `preload` are imported once for all
    roles of a machine, where roles can be forked.
    """

    coordinator: str
    secret: bytes
    module: str
    payload: dict[str, Any]
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
    #: Whether workers of one agent have the machine's cores to themselves.
    pinned: bool = True
    #: Where relative paths of the user's begin.
    folder: str = field(default_factory=os.getcwd)
    python: str = sys.executable
    python_path: tuple[str, ...] = field(
        default_factory=lambda: tuple(os.path.abspath(path) for path in sys.path)
    )


@dataclass(frozen=True)
class AgentsLost:
    """The end of all agents before their time.

    `agent` is the one whose end was the cause, and `executor` the name of what it ran on, where the
    cluster says so.
    """

    reason: str
    agent: int | None = None
    executor: str | None = None


class Cluster(ABC):
    """Places agents."""

    #: How many agents `start` will start.
    agents: int
    #: Whether agents bring data, which they tell of after they have joined.
    spools: bool = False
    #: How many seconds agents have to join, if not for ever.
    patience: float | None = None

    @abstractmethod
    def start(self, launch: Launch) -> None:
        """Start all agents; returns at once. They may be started again when they have ended."""

    @abstractmethod
    def failed(self) -> AgentsLost | None:
        """Return how agents have ended before their time, or None while all is well.

        Raises what is the user's to mend.
        """

    @property
    def ended(self) -> bool:
        """Whether no agent will come (any more)."""
        return False

    def late(self) -> UserError:
        """What to tell the user when agents have not joined in time."""
        raise NotImplementedError

    @abstractmethod
    def stop(self) -> None:
        """End all agents that are still there, and wait for them."""
