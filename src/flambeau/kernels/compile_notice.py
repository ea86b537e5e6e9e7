"""Says once that kernels are being compiled, if one has to wait for it."""

import logging
import threading
import time
from typing import Any, final

from numba.core import event

TELL_AFTER_SECONDS = 2.0
_TEXT = "compiling kernels, which happens once on this machine"


@final
class CompileNotice(event.Listener):
    """Listens to Numba, which compiles one function (and those that it calls) at a time."""

    def __init__(self) -> None:
        self._depth = 0
        self._started = self._spent = 0.0
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """A function is being compiled."""
        self._depth += 1
        if self._depth == 1 and self._spent < TELL_AFTER_SECONDS:
            self._started = time.monotonic()
            self._timer = threading.Timer(TELL_AFTER_SECONDS - self._spent, _tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """It is done."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += time.monotonic() - self._started


def _tell() -> None:
    # Shown on stderr, which workers pass on, unless the program has set its logging up otherwise.
    logging.getLogger("flambeau").warning(_TEXT)


def watch() -> None:
    """Listen from now on."""
    event.register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]
