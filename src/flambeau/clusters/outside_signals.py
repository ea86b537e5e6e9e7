"""Signals that are meant for the driver, but that schedulers send to every process of a job.

Roles and the fork server ignore them: the driver decides whether the job saves, stops or ends, and
agents end roles with SIGKILL. Scripts of `flambeau run` keep Python's behaviour on these signals.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_before: dict[signal.Signals, "signal._HANDLER"] = {}


def withstand() -> None:
    """Ignore these signals in this process and its forks.

    This does not use SIG_IGN, which programs that a role starts would inherit.
    """
    for number in NUMBERS:
        if signal.getsignal(number) is not _do_nothing:
            _before[number] = signal.signal(number, _do_nothing)
            signal.siginterrupt(number, False)


def restore(numbers: Sequence[signal.Signals] = NUMBERS) -> None:
    """Undo `withstand`, except for signals that have another handler by now."""
    for number in numbers:
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, _before[number])


def let_forks_be_terminated() -> None:
    """Let SIGTERM end processes that this one forks from now on, such as data loader processes.

    `multiprocessing` ends its processes with SIGTERM. Forks ignore the other signals, too.
    """
    os.register_at_fork(after_in_child=lambda: restore([signal.SIGTERM]))


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Return to the interrupted code."""
