"""A timeline of operations for chrome://tracing or Perfetto."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, final

from flambeau.compat.horovod.negotiation.messages import Request


@final
class Timeline:
    """The timeline of one rank's negotiations and operations; each name has its own line."""

    def __init__(self) -> None:
        self._file: TextIOWrapper | None = None
        self._lock = threading.Lock()
        self._lines: dict[str, int] = {}
        self._cycles = False

    def start(self, path: Path, *, mark_cycles: bool = False) -> None:
        """Start to write to a new file."""
        self.stop()
        with self._lock:
            self._lines.clear()
            self._cycles = mark_cycles
            self._file = path.open("w", encoding="utf-8")
            began = {"start_time_since_epoch_in_micros": time.time_ns() // 1000}
            event = {"name": "timeline", "ph": "M", "ts": _now(), "pid": 0, "args": began}
            self._file.write("[\n" + json.dumps(event))

    def stop(self) -> None:
        """Complete and close the file."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.write("\n]\n")
                file.close()

    def requested(self, requests: Sequence[Request]) -> None:
        """Begin the negotiation of these requests in the timeline."""
        if self._file is not None:
            for request in requests:
                self._event(request, "B", f"NEGOTIATE_{request.kind.upper()}")

    @contextmanager
    def executing(self, requests: Sequence[Request]) -> Iterator[None]:
        """Enclose the execution of these requests in the timeline."""
        if self._file is None:
            yield
            return
        if self._cycles:
            self._write({"name": "CYCLE_START", "ph": "i", "s": "g", "ts": _now(), "pid": 0})
        for request in requests:
            self._event(request, "E")
            self._event(request, "B", request.kind.upper())
        try:
            yield
        finally:
            for request in requests:
                self._event(request, "E")

    def _event(self, request: Request, phase: str, name: str = "") -> None:
        line = self._lines.get(request.name)
        if line is None:
            line = self._lines[request.name] = len(self._lines) + 1
            named = {"name": "process_name", "ph": "M", "pid": line}
            self._write({**named, "args": {"name": request.name}})
        event: dict[str, Any] = {"ph": phase, "ts": _now(), "pid": line, "tid": 0}
        self._write({**event, "name": name} if name else event)

    def _write(self, event: dict[str, Any]) -> None:
        with self._lock:
            if self._file is not None:
                self._file.write(",\n" + json.dumps(event))


def _now() -> float:
    return time.monotonic_ns() / 1000
