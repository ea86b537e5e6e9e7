"""Reading of the next batches in a thread, while the current one trains."""

import queue
import threading
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, final

Item = TypeVar("Item")

_END = object()


@final
class ReadAhead(Generic[Item]):
    """An iterator that reads `source` at most `depth` items ahead. Close it when done early."""

    def __init__(self, source: Iterator[Item], depth: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=depth)
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._source = source
        self._thread = threading.Thread(target=self._fill, name="flambeau-loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> "ReadAhead[Item]":
        return self

    def __next__(self) -> Item:
        item = self._queue.get()
        if item is not _END:
            return item  # type: ignore[no-any-return]
        self._queue.put(_END)
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Stop reading; wait for the item that is being read."""
        self._closed.set()
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue

    def _fill(self) -> None:
        try:
            for item in self._source:
                self._queue.put(item)
                if self._closed.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised again in the reading thread
            self._error = error
        finally:
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
            self._queue.put(_END)
