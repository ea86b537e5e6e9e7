"""Pure decisions about failures: which of several was the cause, and whether to try again."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from flambeau.coordination.protocol import RoleFailed
from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.stalls import Stall


class Cause(Enum):
    """Kinds of failure, the likeliest root cause first.

    When one worker dies, the others fail too, because their peer is gone: those are LOST_PEER and
    never shown if there is anything better.
    """

    USER_ERROR = 1
    EXCEPTION = 2
    DIED = 3
    SILENT = 4
    STUCK = 5
    #: All workers wait, for each other or for servers.
    DEADLOCK = 6
    LOST_PEER = 7

    @property
    def label(self) -> str:
        """As events name it: "exception", "died", "silent", "stuck" and so on."""
        return self.name.lower()


@dataclass(frozen=True)
class Failure:
    """What happened to one role; `exit_code` is its process's as a shell would say it.

    `place` is where it ran, for people, if there is more than one place; `replaceable` is False
    if the cluster cannot start another one.
    """

    spec: RoleSpec
    cause: Cause
    message: str
    traceback: str = ""
    error: str = ""
    exit_code: int = 1
    place: str = ""
    replaceable: bool = True

    @property
    def where(self) -> str:
        """The end of a sentence about it: where it happened, if that is not clear."""
        return f" ({self.place})" if self.place else ""


class Verdict(Enum):
    """What to do about a failure."""

    RESTART = "restart"
    FAIL = "fail"


def of_exception(message: RoleFailed) -> Failure:
    """The failure of a role that raised."""
    if message.lost_peer:
        cause = Cause.LOST_PEER
    else:
        cause = Cause.USER_ERROR if message.user_error else Cause.EXCEPTION
    text = message.message
    if message.traceback:
        text = f"{message.error}: {text}"
    return Failure(message.spec, cause, text, message.traceback, message.error)


def exception_fields(message: RoleFailed) -> dict[str, str]:
    """Return the fields of the event `exception`."""
    whole = message.whole_traceback
    return {"error": message.error, "text": message.message, "traceback": whole}


def of_exit(spec: RoleSpec, code: int, out_of_memory: bool = False) -> Failure:
    """The failure of a process that ended without a word."""
    if code < 0:
        hint = ": the machine or its container is out of memory" if out_of_memory else ""
        how, status = f"was killed by {_signal_name(-code)}{hint}", 128 - code
    else:
        how, status = f"exited with code {code}", code
    return Failure(spec, Cause.DIED, f"{spec.name} {how}", exit_code=status)


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"signal {number}")  # most real-time signals have no name


def of_silence(spec: RoleSpec, seconds: float) -> Failure:
    """The failure of a process that stopped answering."""
    return Failure(
        spec, Cause.SILENT, f"{spec.name} has not answered for {seconds:.0f} seconds (stopped?)"
    )


def of_stall(stall: Stall, seconds: float) -> list[Failure]:
    """The failures of workers that are alive and have made no progress."""
    limit = f"for {seconds:g} seconds (recovery.progress_timeout)"
    names = ", ".join(spec.name for spec in stall.waiting)
    if stall.together:
        cause, text = Cause.DEADLOCK, f"has made no step {limit}, and nor has any other worker"
    elif names:
        cause, text = Cause.STUCK, f"has made no step {limit}; waiting: {names}"
    else:
        cause, text = Cause.STUCK, f"has made no step {limit}"
    return [Failure(spec, cause, f"{spec.name} {text}") for spec in stall.behind]


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The one to show."""
    return min(failures, key=lambda failure: failure.cause.value)


def decide(failure: Failure, restarts: int, max_restarts: int) -> Verdict:
    """Try again, unless it was the user's mistake or has been tried often enough."""
    if failure.cause is Cause.USER_ERROR or restarts >= max_restarts:
        return Verdict.FAIL
    return Verdict.RESTART
