"""What a role's main thread is doing, as its other threads see it."""

import enum
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: Collectives, also those that the user's own step calls.
_COLLECTIVES = "torch/distributed/distributed_c10d.py"


class Doing(enum.StrEnum):
    """Whether a role that makes no step can be to blame for it."""

    WORKING = "working"
    #: For other workers, for servers or for the coordinator.
    WAITING = "waiting"
    #: With files that may be large: how long that takes says nothing.
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
    """What a thread is doing: what the innermost marked function on its stack says."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        if code in _MARKED:
            return _MARKED[code]
        if code.co_filename.endswith(_COLLECTIVES):
            return Doing.WAITING
        frame = frame.f_back
    return Doing.WORKING
