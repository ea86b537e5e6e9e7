"""The loop of a role that works on parts of the data, one after the other."""

import queue
import time
from collections.abc import Callable
from typing import final

from flambeau.coordination.activity import waits_for_others
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.task_messages import PartAssigned, PartProgress, TaskRequest

REPORT_SECONDS = 0.2

#: A function that works on the part with a number, calls its second argument with numbers of
#: finished rows, and returns the part's result.
Work = Callable[[int, Callable[[int], None]], bytes]


def work_on_parts(coordinator: CoordinatorClient, work: Work) -> int:
    """Request parts and work on them until none is left; return how many there were."""
    assigned: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    coordinator.on(PartAssigned, lambda message, _: assigned.put(message.part))
    count = 0
    while (part := _next_part(coordinator, assigned)) is not None:
        rows = _RowCount(coordinator, part)
        rows.complete(work(part, rows.add))
        count += 1
    return count


@waits_for_others
def _next_part(
    coordinator: CoordinatorClient, assigned: "queue.SimpleQueue[int | None]"
) -> int | None:
    # No timeout: another process may take any time for its part, and if the driver ends, the
    # agent ends this process.
    coordinator.send(TaskRequest(coordinator.spec))
    return assigned.get()


@final
class _RowCount:
    """The number of finished rows of a part, reported a few times per second."""

    def __init__(self, coordinator: CoordinatorClient, part: int) -> None:
        self._coordinator, self._part = coordinator, part
        self._rows, self._sent = 0, time.monotonic()

    def add(self, rows: int) -> None:
        """Add the rows of a batch."""
        self._rows += rows
        self._coordinator.mark()
        if time.monotonic() - self._sent > REPORT_SECONDS:
            self._sent = time.monotonic()
            self._coordinator.send(PartProgress(self._coordinator.spec, self._part, self._rows))

    def complete(self, result: bytes) -> None:
        """Report that the part is complete."""
        done = PartProgress(self._coordinator.spec, self._part, self._rows, complete=True)
        self._coordinator.send(done, [result] if result else [])
