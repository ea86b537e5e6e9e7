"""An agent in a thread of the process that drives the job."""

import threading
from collections.abc import Callable
from typing import final

JOIN_SECONDS = 60.0


@final
class AgentThread:
    """A thread that is an agent until it is told to shut down; `serve` is its work."""

    def __init__(self, serve: Callable[[], None]) -> None:
        self._serve = serve
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="flambeau-agent", daemon=True)
        self._thread.start()

    def take_error(self) -> str | None:
        """Return why the agent has ended before its time, once."""
        error, self._error = self._error, None
        return None if error is None else f"{type(error).__name__}: {error}"

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the agent, which has been told to shut down."""
        self._thread.join(timeout=JOIN_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the agent of this process did not end within {JOIN_SECONDS:g} s")

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - handed to the driver by take_error()
            self._error = error
