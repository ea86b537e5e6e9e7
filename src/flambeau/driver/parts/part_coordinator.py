"""The coordinator of processes that work on independent parts of the data."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, final

from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.task_messages import PartAssigned, PartProgress, TaskRequest
from flambeau.driver.coordinators import TrainingCoordinator

#: Called with the number of rows that are done since the last call.
OnRows = Callable[[int], None]
#: Called once with each part that is complete, and its result.
OnPart = Callable[[int, bytes], None]


@final
class PartCoordinator(TrainingCoordinator):
    """Hands out numbered parts, each to one process at a time, until all are complete.

    The part of a lost process goes to the next one that is free. Its rows are then done twice, and
    counted once. Parts of each group in `later` are handed out once all before are complete.
    """

    elastic = True

    def __init__(
        self,
        parts: Sequence[int],
        on_rows: OnRows,
        on_part: OnPart,
        later: Sequence[Sequence[int]] = (),
    ) -> None:
        super().__init__()
        self._on_rows, self._on_part = on_rows, on_part
        self._waiting, self._later = deque(parts), deque(later)
        self._assigned: dict[int, RoleSpec] = {}
        self._idle: list[RoleSpec] = []
        self._counted = dict.fromkeys(chain(parts, *later), 0)
        self._complete = 0

    def begin(self, generation: int) -> None:
        """Take back what the processes of the generation before had not completed."""
        self._waiting.extendleft(sorted(self._assigned, reverse=True))
        self._assigned.clear()
        self._idle.clear()

    def handle(self, peer: bytes, message: Any, buffers: Sequence[Any]) -> None:
        """Answer requests for parts, and count rows."""
        if isinstance(message, TaskRequest):
            self._idle.append(message.spec)
            self._hand_out()
        elif isinstance(message, PartProgress) and self._holds(message.spec, message.part):
            self._progress(message, bytes(buffers[0]) if buffers else b"")

    def lost(self, spec: RoleSpec) -> None:
        """Give the part of a lost process to another one."""
        self._idle = [idle for idle in self._idle if idle != spec]
        taken = [part for part, holder in self._assigned.items() if holder == spec]
        for part in taken:
            del self._assigned[part]
            self._waiting.appendleft(part)
        self._hand_out()

    def stop(self) -> None:
        """Hand out no further part."""
        self.stopping = True
        self._waiting.clear()
        self._later.clear()
        self._hand_out()

    def summary(self) -> dict[str, Any]:
        """Return how many parts are complete."""
        return {"parts": self._complete}

    def _holds(self, spec: RoleSpec, part: int) -> bool:
        """Whether the part is that process's; what a replaced one reports comes too late."""
        return self._assigned.get(part) == spec

    def _progress(self, message: PartProgress, result: bytes) -> None:
        new = message.rows - self._counted[message.part]
        if new > 0:  # else a lost process had done as much of this part
            self._counted[message.part] = message.rows
            self._on_rows(new)
        if message.complete:
            del self._assigned[message.part]
            self._complete += 1
            self._on_part(message.part, result)
            self._hand_out()

    def _hand_out(self) -> None:
        while not self._waiting and not self._assigned and self._later:
            self._waiting.extend(self._later.popleft())
        while self._idle and self._waiting:
            spec, part = self._idle.pop(0), self._waiting.popleft()
            self._assigned[part] = spec
            self.stage.send(spec, PartAssigned(part))
        if not self._waiting and not self._assigned:
            for spec in self._idle:
                self.stage.send(spec, PartAssigned(None))
            self._idle.clear()
