"""Reading of a run's history from its event log, also while the log grows."""

from pathlib import Path
from typing import Any, Literal, final

import msgspec
import numpy as np

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.durable import write_atomically
from flambeau.errors import RunDirectoryError
from flambeau.observe import Event
from flambeau.reports.history import KINDS, History, Progress

_START = b'{"kind":"'
_HANDLED = {kind.encode() for kind in KINDS}
_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


@final
class _Digest(msgspec.Struct):
    """The history up to some event; `head` is the start of the log, to identify it."""

    head: bytes
    history: History
    #: Incremented with each change of the fields of a history; other formats are not read.
    format: Literal[1] = 1


def read_history(run: RunDirectory) -> History:
    """Return the history of a run up to now; it is empty if there are no events yet."""
    history = _read_digest(run) or History()
    read_on(history, run)
    return history


def read_on(history: History, run: RunDirectory) -> bool:
    """Add the events written since the last read; return whether there were any.

    An incomplete last line is left for the next read.
    """
    before = history.offset
    try:
        log = run.events.open("rb")
    except FileNotFoundError:
        return False
    with log:
        log.seek(before)
        for line in log:
            if not line.endswith(b"\n"):
                break
            _add_line(history, line, run.events)
            history.offset += len(line)
    return history.offset > before


def _add_line(history: History, line: bytes, path: Path) -> None:
    kind = b""
    if line.startswith(_START):
        kind = line[len(_START) : line.index(b'"', len(_START))]
        if kind not in _HANDLED:
            return
    try:
        if kind == b"progress":
            history.add_progress(_decode_progress(line))
            return
        record = _decode_any(line)
        history.add(Event(record.pop("kind"), record.pop("time"), record))
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            f"{path}, at byte {history.offset}, has a line that is not an event of a run "
            f"({error!r}); the file was changed by something else: remove that line"
        ) from error


def write_digest(run: RunDirectory, history: History) -> None:
    """Write the digest of a run's log from its history."""
    digest = _Digest(_head(run), history)
    write_atomically(run.digest, msgspec.msgpack.encode(digest, enc_hook=_to_bytes))


def _read_digest(run: RunDirectory) -> History | None:
    """Return the history up to the last digest; None if no digest matches the log."""
    try:
        content = run.digest.read_bytes()
        digest = msgspec.msgpack.decode(content, type=_Digest, dec_hook=_from_bytes)
        fits = digest.head == _head(run) and digest.history.offset <= run.events.stat().st_size
    except (FileNotFoundError, msgspec.MsgspecError):
        return None  # the log contains everything that a digest does
    return digest.history if fits else None


def _head(run: RunDirectory) -> bytes:
    with run.events.open("rb") as log:
        return log.read(200)


def _to_bytes(array: Any) -> Any:
    assert isinstance(array, np.ndarray)
    return (array.shape, array.tobytes())


def _from_bytes(kind: type, content: Any) -> Any:
    shape, numbers = content
    return np.frombuffer(numbers).reshape(shape)
