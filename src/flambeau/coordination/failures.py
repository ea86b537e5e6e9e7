"""Pure decisions about failures: which one is the root cause, and whether to restart."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from flambeau.coordination.protocol import RoleFailed
from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.stalls import Stall


class Cause(Enum):
    """Kinds of failure, the likeliest root cause first.

    When one worker dies, the others fail too because they lose their peer. Those failures are
    LOST_PEER, and are shown only if there is no other.
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
        """Name in events: "exception", "died", "silent", "stuck" and so on."""
        return self.name.lower()


@dataclass(frozen=True)
class Failure:
    """Failure of one role; `exit_code` is that of its process, as a shell reports it.

    `place` describes where the role ran, for messages to the user; it is empty if there is only one
    place. `replaceable` is False if the cluster cannot start another process in its place.
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
        """Suffix for a sentence about the failure: where it happened, or empty if that is clear."""
        return f" ({self.place})" if self.place else ""


class Verdict(Enum):
    """Decision about a failure."""

    RESTART = "restart"
    FAIL = "fail"


_ILLEGAL_INSTRUCTION = (
    " (illegal instruction): a package in use was compiled for a newer CPU than this one. "
    "Install it again on a node of this kind; `flambeau doctor` shows what this CPU has"
)


def of_exception(message: RoleFailed) -> Failure:
    """Return the failure of a role that raised an exception."""
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
    """Return the failure of a process that exited without reporting an error."""
    if code < 0:
        hint = ": the machine or its container is out of memory" if out_of_memory else ""
        if -code == signal.SIGILL:
            hint = _ILLEGAL_INSTRUCTION
        how, status = f"was killed by {_signal_name(-code)}{hint}", 128 - code
    else:
        how, status = f"exited with code {code}", code
    return Failure(spec, Cause.DIED, f"{spec.name} {how}", exit_code=status)


def _signal_name(number: int) -> str:
    known = {member.value: member.name for member in signal.Signals}
    return known.get(number, f"signal {number}")  # most real-time signals have no name


def of_silence(spec: RoleSpec, seconds: float) -> Failure:
    """Return the failure of a process that has sent no heartbeat for `seconds`."""
    return Failure(
        spec, Cause.SILENT, f"{spec.name} has not answered for {seconds:.0f} seconds (stopped?)"
    )


def of_stall(stall: Stall, seconds: float) -> list[Failure]:
    """Return the failures of workers that are alive but have made no progress for `seconds`."""
    limit = f"for {seconds:g} seconds (recovery.progress_timeout)"
    names = ", ".join(spec.name for spec in stall.waiting)
    if stall.together:
        cause, text = Cause.DEADLOCK, f"has made no step {limit}, and neither has any other worker"
    elif names:
        cause, text = Cause.STUCK, f"has made no step {limit}; waiting: {names}"
    else:
        cause, text = Cause.STUCK, f"has made no step {limit}"
    return [Failure(spec, cause, f"{spec.name} {text}") for spec in stall.behind]


def root_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure to show: the one with the likeliest cause."""
    return min(failures, key=lambda failure: failure.cause.value)


def decide(failure: Failure, restarts: int, max_restarts: int) -> Verdict:
    """Return RESTART, unless it is a user error or the limit of restarts is reached."""
    if failure.cause is Cause.USER_ERROR or restarts >= max_restarts:
        return Verdict.FAIL
    return Verdict.RESTART
