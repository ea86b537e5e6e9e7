"""How long something took, all times together."""

import time
from types import TracebackType
from typing import final


@final
class Stopwatch:
    """Adds up the `seconds` of all `with` blocks under it; they are not nested."""

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
