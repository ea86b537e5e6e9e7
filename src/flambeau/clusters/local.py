"""Workers on this machine: one agent, in a thread of the driver."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, final

from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import AgentEnded, Cluster, Launch
from flambeau.config import Local

LOOPBACK = "127.0.0.1"


@final
class LocalCluster(Cluster):
    """A single agent that starts all roles here, however many; it has no frames of its own."""

    agents = 1
    coordinator_host = LOOPBACK
    pins_cores = True

    def __init__(self, settings: Local, frames: Mapping[str, Any]) -> None:
        self._launch: Launch | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, launch: Launch) -> None:
        """Start the agent's thread."""
        self._launch, self._error = launch, None
        self._thread = threading.Thread(
            target=self._serve, args=(launch,), name="flambeau-agent", daemon=True
        )
        self._thread.start()

    def poll(self) -> list[AgentEnded]:
        """Return why the agent ended, if it did."""
        if self._error is None:
            return []
        reason, self._error = f"{type(self._error).__name__}: {self._error}", None
        return [AgentEnded(reason, 0)]

    def restart(self, agents: Sequence[int]) -> None:
        """Start another thread; the one before has ended."""
        assert self._launch is not None
        self.start(self._launch)

    @property
    def ended(self) -> bool:
        """Whether the agent has ended."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """Wait for the agent, which has been told to shut down."""
        if self._thread is not None:
            self._thread.join(timeout=60)
            if self._thread.is_alive():
                raise RuntimeError("the local agent did not end within 60 s")

    def _serve(self, launch: Launch) -> None:
        try:
            agent_main(launch, agent=0, host=LOOPBACK)
        except Exception as error:  # noqa: BLE001 - handed to the driver by poll()
            self._error = error
