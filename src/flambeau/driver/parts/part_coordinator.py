"""The coordinator of processes that work on independent parts of the data."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, final

from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.task_messages import PartAssigned, PartProgress, TaskRequest
from flambeau.driver.coordinators import TrainingCoordinator

#: Called with the number of rows done since the last call.
OnRows = Callable[[int], None]
#: Called once for each part that is complete, with its number and result.
OnPart = Callable[[int, bytes], None]


@final
class PartCoordinator(TrainingCoordinator):
    """The coordinator that assigns numbered parts, each to one process at a time.

    The part of a lost process is assigned to the next idle one. Its rows are then processed twice,
    but counted once. Each group of parts in `later` is assigned once all parts before are complete.
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
        """Take back the parts that processes of the previous generation had not completed."""
        self._waiting.extendleft(sorted(self._assigned, reverse=True))
        self._assigned.clear()
        self._idle.clear()

    def handle(self, peer: bytes, message: Any, buffers: Sequence[Any]) -> None:
        """Handle requests for parts and reports of progress."""
        if isinstance(message, TaskRequest):
            self._idle.append(message.spec)
            self._hand_out()
        elif isinstance(message, PartProgress) and self._holds(message.spec, message.part):
            self._progress(message, bytes(buffers[0]) if buffers else b"")

    def lost(self, spec: RoleSpec) -> None:
        """Assign the part of a lost process to another one."""
        self._idle = [idle for idle in self._idle if idle != spec]
        taken = [part for part, holder in self._assigned.items() if holder == spec]
        for part in taken:
            del self._assigned[part]
            self._waiting.appendleft(part)
        self._hand_out()

    def stop(self) -> None:
        """Stop assigning parts."""
        self.stopping = True
        self._waiting.clear()
        self._later.clear()
        self._hand_out()

    def summary(self) -> dict[str, Any]:
        """Return the number of parts that are complete."""
        return {"parts": self._complete}

    def _holds(self, spec: RoleSpec, part: int) -> bool:
        """Return whether a process holds a part; reports of a replaced process are ignored."""
        return self._assigned.get(part) == spec

    def _progress(self, message: PartProgress, result: bytes) -> None:
        new = message.rows - self._counted[message.part]
        if new > 0:  # else a lost process has already done as much of this part
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
