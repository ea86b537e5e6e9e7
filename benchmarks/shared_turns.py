"""Taking turns in a training whose workers do not wait for each other."""

import fcntl
import time
from pathlib import Path
from typing import final

import numpy as np
from turns import Turn

GATE = "gate"
STEPS = "steps"


@final
class SharedTurn:
    """In each worker: while it is not this training's turn, all of them wait after their step.

    The first worker has the word. It counts the steps of all, so that a worker that makes fewer
    than another counts for fewer.
    """

    def __init__(self, directory: Path, rank: int, workers: int, warm: int, timed: int) -> None:
        self._rank, self._warm, self._timed = rank, warm, timed
        # Whoever holds it alone has closed it.
        self._gate = (directory / GATE).open("a")
        with (directory / STEPS).open("ab") as file:
            file.truncate(8 * workers)
        self._steps = np.memmap(directory / STEPS, np.int64, "r+", shape=(workers,))
        self._turn = Turn(directory, warm, timed) if rank == 0 else None
        self._since, self._before, self._done = 0.0, 0, 0

    def wait(self) -> bool:
        """Until it is this training's turn. False: no turn is left."""
        if self._turn is None:
            fcntl.flock(self._gate, fcntl.LOCK_SH)
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            return True
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        has_turn = self._turn.wait()
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        return has_turn

    def step_done(self) -> bool:
        """To be called after each step. False: no turn is left."""
        self._steps[self._rank] += 1
        if self._turn is None:
            return self.wait()
        self._done += 1
        if self._done == self._warm:
            self._since, self._before = time.perf_counter(), int(self._steps.sum())
        if self._done < self._warm + self._timed:
            return True
        self._done = 0
        self._turn.report(self._seconds())
        return self.wait()

    def _seconds(self) -> float:
        """How long all workers took for as many steps as they would make in lockstep."""
        steps = int(self._steps.sum()) - self._before
        return (time.perf_counter() - self._since) * self._timed * len(self._steps) / steps
