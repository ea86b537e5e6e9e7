"""The position of a training in steps, epochs and rows."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Position:
    """Progress of the training. `step` is the number of updates made so far.

    `start_row` is the row of the epoch's order at which the epoch was (re)entered: 0, unless a run
    resumed with another number of workers in the middle of an epoch. `rows` counts every row of an
    epoch once; `repeated` counts rows that were applied again because an epoch started again,
    `dropped` those whose gradients were dropped, and `left_out` those not trained on at all.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    start_row: int = 0
    rows: int = 0
    rows_in_epoch: int = 0
    repeated: int = 0
    dropped: int = 0
    left_out: int = 0
    left_out_in_epoch: int = 0

    def advance(self, rows: int, left_out: int = 0) -> None:
        """Count an update for `rows` rows over all workers, `left_out` of them not trained on."""
        self.step += 1
        self.step_in_epoch += 1
        self.rows += rows
        self.rows_in_epoch += rows
        self.left_out += left_out
        self.left_out_in_epoch += left_out

    @property
    def epoch_of_last_step(self) -> int:
        """Epoch of the last update, also when that epoch is complete."""
        return max(0, self.epoch - 1) if self.step_in_epoch == 0 else self.epoch

    def next_epoch(self) -> None:
        """Move on to the next epoch."""
        self.epoch += 1
        self.step_in_epoch = self.start_row = self.rows_in_epoch = self.left_out_in_epoch = 0

    def change_workers(self, *, by_row: bool) -> None:
        """Adapt to another number of workers (or another batch size) after a resume.

        Data with row numbers continues at the exact row; other data starts its epoch again.
        """
        if by_row:
            self.start_row += self.rows_in_epoch
        else:
            self.repeated += self.rows_in_epoch
            self.rows -= self.rows_in_epoch
            self.left_out -= self.left_out_in_epoch
        self.rows_in_epoch = self.step_in_epoch = self.left_out_in_epoch = 0

    def dump(self) -> dict[str, Any]:
        """Return the position as plain values, for a checkpoint."""
        return asdict(self)
