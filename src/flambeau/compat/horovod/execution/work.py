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
    """An operation that this rank has requested: its input, and in the end its output or error.

    `target` is where the result goes, if that exists before: a tensor of the caller's for
    operations in place. One thread at most waits for it.
    """

    request: Request
    tensor: Tensor | None = None
    target: Tensor | None = None
    output: Any = None
    error: str = ""
    #: Whether there is an output or an error.
    done: bool = False
    #: Exists as soon as a thread waits.
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
        """Return the output, for which it waits; raise the error."""
        if not self.done:
            self._awaited = awaited = threading.Event()
            if not self.done:  # `end` looks for the event after it has set `done`
                awaited.wait()
        if self.error:
            raise HorovodInternalError(self.error)
        return self.output


def end(works: Iterable[Work | None]) -> None:
    """Let the results of works be taken: all of them before any thread that waits continues."""
    ended = [work for work in works if work is not None]
    for work in ended:
        work.done = True
    for work in ended:
        if work._awaited is not None:
            work._awaited.set()
