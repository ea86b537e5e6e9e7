"""Operations in flight on one rank."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from flambeau.compat.horovod.common.exceptions import HorovodInternalError
from flambeau.compat.horovod.negotiation.messages import Request
from flambeau.coordination.activity import waits_for_others


@final
@dataclass(eq=False, slots=True)
class Work:
    """An operation that this rank has requested: its input, and finally its output or error.

    `target` receives the result of an in-place operation; the caller owns it. At most one thread
    waits for a work.
    """

    request: Request
    tensor: Tensor | None = None
    target: Tensor | None = None
    output: Any = None
    error: str = ""
    #: Whether there is an output or an error.
    done: bool = False
    #: Created when a thread waits.
    _awaited: threading.Event | None = None

    def finish(self, output: Any = None) -> None:
        """Set the output."""
        self.output = output
        end([self])

    def fail(self, error: str) -> None:
        """Set the error."""
        if not self.done:
            self.error = error
            end([self])

    @waits_for_others
    def wait(self) -> Any:
        """Wait for the output and return it, or raise the error."""
        if not self.done:
            self._awaited = awaited = threading.Event()
            if not self.done:  # `end` looks for the event after it has set `done`
                awaited.wait()
        if self.error:
            raise HorovodInternalError(self.error)
        return self.output


def end(works: Iterable[Work | None]) -> None:
    """Mark works as done: all of them before any waiting thread continues."""
    ended = [work for work in works if work is not None]
    for work in ended:
        work.done = True
    for work in ended:
        if work._awaited is not None:
            work._awaited.set()
