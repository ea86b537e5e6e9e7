"""An agent in a thread of the driver."""

import threading
from collections.abc import Callable
from typing import final

JOIN_SECONDS = 60.0


@final
class AgentThread:
    """A thread that runs an agent (`serve`) until it is shut down."""

    def __init__(self, serve: Callable[[], None]) -> None:
        self._serve = serve
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="flambeau-agent", daemon=True)
        self._thread.start()

    def take_error(self) -> str | None:
        """Return, once, the error that ended the agent; None if there is none."""
        error, self._error = self._error, None
        return None if error is None else f"{type(error).__name__}: {error}"

    @property
    def ended(self) -> bool:
        """Whether the agent has ended."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the agent to end, after `Shutdown` was sent to it."""
        self._thread.join(timeout=JOIN_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the agent of this process did not end within {JOIN_SECONDS:g} s")

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 - handed to the driver by take_error()
            self._error = error
