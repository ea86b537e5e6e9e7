"""Ctrl-C and SIGTERM, counted for the controller instead of ending the process at once."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import Any, final


class Wish(Enum):
    """The action that signals request now."""

    NONE = "nothing"
    STOP = "stop in good order; asked for once"
    END = "end at once"


@final
class Signals:
    """The number of requests to end this process (`count`), and the last signal.

    Signals within `repeats_seconds` after the first one are repetitions of it: launchers forward to
    their processes signals that these have already received from the terminal.
    """

    def __init__(self, repeats_seconds: float = 0.0) -> None:
        self._repeats_seconds, self._first = repeats_seconds, -math.inf
        self.count = 0
        self.last: signal.Signals | None = None
        self._answered = 0
        self._deadline = math.inf

    def wish(self, now: float, grace_seconds: float) -> Wish:
        """Return what signals request now; each request is returned once.

        The first request is to stop; each further signal, or the end of the grace period, is one to
        end.
        """
        if self.count > self._answered:
            first, self._answered = self._answered == 0, self.count
            self._deadline = now + grace_seconds if first else math.inf
            return Wish.STOP if first and self.count == 1 else Wish.END
        if now > self._deadline:
            self._deadline = math.inf
            return Wish.END
        return Wish.NONE

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Count signals during the `with` block. Works only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield  # the code that started this thread handles signals
            return
        before: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._first < self._repeats_seconds:
            return
        self._first = now if self.count == 0 else self._first
        self.count += 1
        self.last = signal.Signals(number)
