"""Records of the stages of `flambeau criteo`, in a file, for later calls and for the summary."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from flambeau.checkpoint.durable import write_atomically
from flambeau.errors import DataError, RunDirectoryError
from flambeau.observe.memory import watched_memory

FILE = "criteo.json"
#: Ways to train: from files of prepared features, or directly from the logs.
PREPARED, RAW = "prepared", "raw"


@final
class Records:
    """Records of the stages of both ways: each has its request, its resource usage and its results.

    In a job of several processes only one `writes`; all of them read the file before.
    """

    def __init__(self, out: Path, way: str, *, writes: bool) -> None:
        self._file, self._way, self._writes = out / FILE, way, writes
        self._ways: dict[str, dict[str, dict[str, Any]]] = {}
        if self._file.exists():
            try:
                self._ways = json.loads(self._file.read_bytes())
            except ValueError as error:
                raise DataError(f"{self._file} is damaged: {error}; remove it") from None

    def of(self, way: str) -> dict[str, dict[str, Any]]:
        """Return the records of the stages of a way, by name."""
        return self._ways.get(way, {})

    def __getitem__(self, stage: str) -> dict[str, Any]:
        return self.of(self._way).get(stage, {})

    def is_done(self, stage: str, asked: Any) -> bool:
        """Return whether a stage was finished before, for the same request."""
        record = self[stage]
        return bool(record.get("done")) and record.get("asked") == plain(asked)

    @contextmanager
    def stage(self, stage: str, asked: Any) -> Iterator[dict[str, Any]]:
        """Measure a stage, and record it with the values that the caller puts into the dict.

        The seconds of interrupted attempts are added.
        """
        before = self[stage] if self[stage].get("asked") == plain(asked) else {}
        spent = 0.0 if before.get("done") else before.get("seconds", 0.0)
        found: dict[str, Any] = {"asked": plain(asked), "done": False}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with watched_memory() as memory:
            try:
                yield found
                found["done"] = True
            except RunDirectoryError:
                found.clear()  # the run was refused, so its earlier record is still correct
                raise
            finally:
                if found:
                    found["seconds"] = spent + time.monotonic() - began
                    earlier = 0 if before.get("done") else before.get("memory") or 0
                    found["memory"] = max(memory.bytes or 0, earlier) or None
                    self._ways.setdefault(self._way, {})[stage] = found
                    self._write()

    def _write(self) -> None:
        if self._writes:
            write_atomically(self._file, json.dumps(self._ways, indent=1).encode())


def plain(value: Any) -> Any:
    """Return a value as it is after a round trip through JSON."""
    return json.loads(json.dumps(value, default=str))
