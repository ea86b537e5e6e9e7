"""A message, shown once, that kernels are being compiled, if that takes long."""

import logging
import threading
import time
from typing import Any, final

from numba.core import event

TELL_AFTER_SECONDS = 2.0
_TEXT = "compiling kernels, which happens once on this machine"


@final
class CompileNotice(event.Listener):
    """Listener to Numba, which compiles one function (and those that it calls) at a time."""

    def __init__(self) -> None:
        self._depth = 0
        self._started = self._spent = 0.0
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """Start a timer that shows the message, when a compilation starts."""
        self._depth += 1
        if self._depth == 1 and self._spent < TELL_AFTER_SECONDS:
            self._started = time.monotonic()
            self._timer = threading.Timer(TELL_AFTER_SECONDS - self._spent, _tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """Stop the timer when the compilation ends."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._started


def _tell() -> None:
    # Appears on stderr, which workers forward, unless the program configures logging otherwise.
    logging.getLogger("flambeau").warning(_TEXT)


def watch() -> None:
    """Register the listener with Numba."""
    event.register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]
