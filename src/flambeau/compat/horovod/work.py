"""Operations in flight on one rank."""

import threading
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor

from flambeau.compat.horovod.common.exceptions import HorovodInternalError
from flambeau.compat.horovod.messages import Request
from flambeau.coordination.activity import waits_for_others


@final
@dataclass(eq=False)
class Work:
    """An operation that this rank has requested: its input, and in the end its output or error.

    `target` is where the result goes, if that exists before: a tensor of the caller's for
    operations in place.
    """

    request: Request
    tensor: Tensor | None = None
    target: Tensor | None = None
    output: Any = None
    error: str = ""
    #: Whether the result is the first part of the output alone.
    only_first: bool = False
    _done: threading.Event = field(default_factory=threading.Event)

    def finish(self, output: Any = None) -> None:
        """Set the output."""
        self.output = output
        self._done.set()

    def fail(self, error: str) -> None:
        """Set the error."""
        if not self._done.is_set():
            self.error = error
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether there is an output or an error."""
        return self._done.is_set()

    @waits_for_others
    def wait(self) -> Any:
        """Return the output, for which it waits; raise the error."""
        self._done.wait()
        if self.error:
            raise HorovodInternalError(self.error)
        return self.output[0] if self.only_first else self.output
