"""The log of all events of a run, with one JSON object per line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final

import msgspec

from flambeau.errors import RunDirectoryError
from flambeau.observe.event import Event, Observer


@final
class EventLog(Observer):
    """A file to which each event is appended; it is always complete up to the last event.

    Numbers that JSON lacks (NaN, infinity) are written as null. An existing file is continued, and
    a partial line that a killed process left at its end is removed; but nothing is removed from a
    `shared` file, to which another process is writing.
    """

    def __init__(self, path: str | Path, *, shared: bool = False) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if not shared:
            _cut_torn_line(path, self._file)

    def observe(self, event: Event) -> None:
        record = {"kind": event.kind, "time": event.time, **event.fields}
        self._file.write(msgspec.json.encode(record, enc_hook=_plain) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_events(path: str | Path, begin: int = 0) -> Iterator[Event]:
    """Yield the events of a log, in order, without a last line that is still being written.

    `begin` is the byte offset of the first line to read.
    """
    with Path(path).open("rb") as lines:
        lines.seek(begin)
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):
                yield _parse(line, f"{path}, line {number}")


def _parse(line: bytes, where: str) -> Event:
    try:
        record = msgspec.json.decode(line, type=dict[str, Any])
        return Event(record.pop("kind"), record.pop("time"), record)
    except (msgspec.MsgspecError, KeyError) as error:
        raise RunDirectoryError(
            f"{where} is not an event ({error}); the file was changed by something else: "
            "remove that line"
        ) from error


def _plain(value: Any) -> Any:
    """Return NumPy scalars and arrays as Python values, and other values as strings."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _cut_torn_line(path: Path, file: BinaryIO) -> None:
    # Otherwise the next event would be appended to the torn line, and both would be lost.
    with path.open("rb") as lines:
        file.truncate(sum(len(line) for line in lines if line.endswith(b"\n")))
