"""Activity of a role's main thread, as seen from its other threads."""

import enum
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: Collective operations, including those that the user's own training step calls.
_COLLECTIVES = "torch/distributed/distributed_c10d.py"


class Doing(enum.StrEnum):
    """Activity of a role. Only a role that is WORKING can be blamed for making no steps."""

    WORKING = "working"
    #: Waiting for other workers, for servers or for the coordinator.
    WAITING = "waiting"
    #: Reading or writing files, which may be large: a long duration indicates no problem.
    STORING = "storing"


_MARKED: dict[CodeType, Doing] = {}


def waits_for_others(function: Function) -> Function:
    """Mark a function in which a worker waits for other processes."""
    _MARKED[function.__code__] = Doing.WAITING
    return function


def stores(function: Function) -> Function:
    """Mark a function that reads or writes checkpoints."""
    _MARKED[function.__code__] = Doing.STORING
    return function


def doing_of(thread: int) -> Doing:
    """Return the activity of a thread, given by the innermost marked function on its stack."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        if code in _MARKED:
            return _MARKED[code]
        if code.co_filename.endswith(_COLLECTIVES):
            return Doing.WAITING
        frame = frame.f_back
    return Doing.WORKING
