"""Everything that happened in a run, one JSON object a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final

import msgspec

from flambeau.errors import RunDirectoryError
from flambeau.observe.event import Event, Observer


@final
class EventLog(Observer):
    """Appends each event to a file, which is complete up to the last event at any time.

    Numbers that JSON does not have (NaN, infinity) are written as null. A file that is already
    there goes on, without the half line that a killed process may have left; but if it is
    `shared`, another process is writing to it, and nothing is cut.
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
    """The events of a log, in order; a last line that is still being written is left out.

    `begin` is the byte where a line begins.
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
    """numpy's scalars and arrays as Python's own, anything else as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _cut_torn_line(path: Path, file: BinaryIO) -> None:
    # The next event would otherwise be glued to the torn one, and both lost.
    with path.open("rb") as lines:
        file.truncate(sum(len(line) for line in lines if line.endswith(b"\n")))
