"""What free workers together have done, for whoever watches."""

import math
from collections.abc import Sequence
from typing import Any, final

from flambeau.coordination.protocol import Trained


@final
class AsyncProgress:
    """Updates (`step`) and rows so far, and sums since progress was last told."""

    def __init__(self) -> None:
        self.step = 0
        self.rows = 0
        self._clear()

    def _clear(self) -> None:
        self._loss = self._seconds = self._data = self._waiting = 0.0
        self._rows = self._batches = 0
        self._lr = 0.0

    def add(self, message: Trained, new: Sequence[int]) -> None:
        """A worker's report; `new` are the rows of those of its batches that count."""
        self.step += len(new)
        self.rows += sum(new)
        self._rows += sum(rows for _, rows in message.batches)
        self._batches += len(message.batches)
        self._loss += message.loss if math.isfinite(message.loss) else 0.0
        self._seconds += message.seconds
        self._data += message.data_seconds
        self._waiting += message.waiting_seconds
        self._lr = message.lr or self._lr

    def told(self, elapsed: float) -> dict[str, Any]:
        """The fields of a `progress` event; none if nothing was done."""
        if not self._rows:
            return {}
        batches = max(1, self._batches)
        mean, data = self._seconds / batches, self._data / batches
        waiting = self._waiting / batches
        fields = {
            "step": self.step,
            "rows": self.rows,
            "rows_per_second": self._rows / max(elapsed, 1e-9),
            "loss": self._loss / self._rows,
            "lr": self._lr,
            "data_seconds": data,
            "compute_seconds": max(0.0, mean - data - waiting),
            "communication_seconds": waiting,
        }
        self._clear()
        return fields
