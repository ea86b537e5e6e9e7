"""Ctrl-C and SIGTERM, counted instead of obeyed at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import Any, final


class Wish(Enum):
    """What signals ask for now."""

    NONE = "nothing"
    STOP = "stop in good order; asked for once"
    END = "end at once"


@final
class Signals:
    """How often the process was asked to end (`count`), and by which signal the last time."""

    def __init__(self) -> None:
        self.count = 0
        self.last: signal.Signals | None = None
        self._deadline: float | None = None

    def wish(self, now: float, grace_seconds: float) -> Wish:
        """What is asked for: to stop, then, after a second signal or the time of grace, to end."""
        if not self.count:
            return Wish.NONE
        if self._deadline is None:
            self._deadline = now + grace_seconds
            return Wish.STOP
        return Wish.END if self.count > 1 or now > self._deadline else Wish.NONE

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Count signals as long as the `with` lasts. Only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield  # its owner will end us
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
        self.count += 1
        self.last = signal.Signals(number)
