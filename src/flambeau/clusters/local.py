"""Workers on this machine: one agent, in a thread of the driver."""

import threading
from typing import final

from flambeau.clusters.agent import agent_main
from flambeau.clusters.base import AgentsLost, Cluster, Launch

LOOPBACK = "127.0.0.1"


@final
class LocalCluster(Cluster):
    """A single agent that starts all roles here."""

    agents = 1

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, launch: Launch) -> None:
        """Start the agent's thread."""
        self._thread = threading.Thread(
            target=self._serve, args=(launch,), name="flambeau-agent", daemon=True
        )
        self._thread.start()

    def failed(self) -> AgentsLost | None:
        """Return why the agent ended, if it did."""
        if self._error is None:
            return None
        return AgentsLost(f"{type(self._error).__name__}: {self._error}")

    @property
    def ended(self) -> bool:
        """Whether the agent has failed."""
        return self._error is not None

    def stop(self) -> None:
        """Wait for the agent, which has been told to shut down."""
        if self._thread is not None:
            self._thread.join(timeout=60)
            if self._thread.is_alive():
                raise RuntimeError("the local agent did not end within 60 s")

    def _serve(self, launch: Launch) -> None:
        try:
            agent_main(launch, agent=0, host=LOOPBACK)
        except Exception as error:  # noqa: BLE001 - handed to the driver by failed()
            self._error = error
