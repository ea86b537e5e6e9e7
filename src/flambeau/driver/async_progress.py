"""The joint progress of asynchronous workers, in total and since the last progress event."""

import math
from collections.abc import Sequence
from typing import Any, final

from flambeau.coordination.step_sums import StepSums
from flambeau.coordination.task_messages import Trained


@final
class AsyncProgress:
    """The number of updates (`step`) and rows so far, and sums since the last progress event."""

    def __init__(self) -> None:
        self.step = 0
        self.rows = 0
        self._sums = StepSums()
        self._lr = 0.0

    def add(self, message: Trained, new: Sequence[int]) -> None:
        """Add a worker's report; `new` has the number of rows of each batch that counts."""
        self.step += len(new)
        self.rows += sum(new)
        self._sums += StepSums(
            message.loss if math.isfinite(message.loss) else 0.0,
            sum(rows for _, rows in message.batches),
            len(message.batches),
            message.seconds,
            message.data_seconds,
            message.waiting_seconds,
        )
        self._lr = message.lr or self._lr

    def take(self, elapsed: float) -> dict[str, Any]:
        """Return the fields of a `progress` event and reset the sums; empty without progress."""
        sums, self._sums = self._sums, StepSums()
        if not sums.rows:
            return {}
        return {"step": self.step, "rows": self.rows, "lr": self._lr, **sums.progress(elapsed)}
