"""The lifeline pipe between an agent and the processes it starts.

An agent writes a `ChildSpec` into a pipe and keeps the pipe open. The child reads it; when the pipe
later closes, the agent has ended (even by SIGKILL), and the child kills its process group.
"""

import ctypes
import faulthandler
import os
import signal
import struct
import sys
import threading

import msgspec

from flambeau.clusters import outside_signals
from flambeau.clusters.open_files import raise_open_files
from flambeau.coordination.payloads import Payload, Site
from flambeau.coordination.roles import Role, RoleSpec

_LENGTH = struct.Struct("<I")
#: The first four bits of a msgpack map with up to 15 entries; no ASCII text begins with them.
_SMALL_MAP = 0b1000
_PR_SET_PDEATHSIG = 1
#: Makes a role print its Python stacks, even while it holds the interpreter lock. A real-time
#: signal, since user code may use the others.
STACKS_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGUSR2)


class ChildSpec(msgspec.Struct, frozen=True):
    """Everything that a child receives from its agent."""

    coordinator: str
    secret: bytes
    spec: RoleSpec
    payload: Payload
    site: Site
    python_path: list[str]
    cores: list[int]


def write_message(pipe: int, message: msgspec.Struct) -> None:
    """Send a process its first message; the pipe stays open as its lifeline."""
    data = msgspec.msgpack.encode(message)
    with os.fdopen(os.dup(pipe), "wb") as stream:
        stream.write(_LENGTH.pack(len(data)) + data)


def read_message(pipe: int) -> bytes:
    """Return the encoded message of `write_message`; raise `EOFError` if it is incomplete.

    Raise `msgspec.DecodeError` for anything else, before waiting for the many bytes that the
    beginning of a text would mean as a length.
    """
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    first = read_exactly(pipe, min(length, 1))
    if not first or first[0] >> 4 != _SMALL_MAP:
        raise msgspec.DecodeError("it does not begin like a message")
    return first + read_exactly(pipe, length - 1)


def attach(pipe: int) -> ChildSpec:
    """Return the spec of this child; call this first. From now on it ends when its agent does."""
    die_with_parent()
    outside_signals.withstand()
    raise_open_files()
    os.set_inheritable(pipe, False)
    try:
        child = msgspec.msgpack.decode(read_message(pipe), type=ChildSpec)
    except EOFError:
        raise SystemExit("the agent exited before it sent this process its role") from None
    if child.spec.role is Role.SCRIPT:
        outside_signals.restore()
    else:
        outside_signals.let_forks_be_terminated()
    faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True)
    threading.Thread(target=_end_with, args=(pipe,), name="flambeau-life", daemon=True).start()
    if child.cores:
        os.sched_setaffinity(0, child.cores)
    known = set(sys.path)
    sys.path.extend(path for path in child.python_path if path not in known)
    return child


def _end_with(pipe: int) -> None:
    while os.read(pipe, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def die_with_parent() -> None:
    """Let the kernel kill this process with its parent: a stopped child cannot read its pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def read_exactly(pipe: int, count: int) -> bytes:
    """Return the next `count` bytes of a pipe; raise `EOFError` if it ends before."""
    parts = []
    while count:
        part = os.read(pipe, min(count, 1 << 20))
        if not part:
            raise EOFError("the pipe has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
