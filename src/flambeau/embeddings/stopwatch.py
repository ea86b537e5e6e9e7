"""Total time spent in a piece of code."""

import time
from types import TracebackType
from typing import final


@final
class Stopwatch:
    """Context manager that adds up the `seconds` of its `with` blocks, which must not be nested."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds += time.perf_counter() - self._since
