"""Our side of the all-reduce benchmark.

flambeau_fit.py WORKLOAD BLOCKS [AFFINITY] DIRECTORY
"""

import sys
from pathlib import Path

from turns import Turn
from workloads import LEARNING_RATE, MOMENTUM, WORKERS, WORKLOADS, cluster

import flambeau as fb
from flambeau.training.callbacks import TrainingView


class TakeTurns(fb.Callback):
    """Runs blocks of steps when it is told to."""

    def __init__(self, directory: Path, warm: int, timed: int) -> None:
        self._arguments = directory, warm, timed
        self._turn: Turn | None = None

    def on_start(self, view: TrainingView) -> None:
        """Wait for the first turn."""
        if view.first:
            self._turn = Turn(*self._arguments)
            self._turn.wait()

    def on_step_end(self, view: TrainingView) -> None:
        """Report, and wait, when a block is over."""
        if self._turn is not None:
            self._turn.step_done(view.step)


def main(name: str, blocks: int, where: fb.Local, directory: Path) -> None:
    workload = WORKLOADS[name]
    fb.fit(
        workload.build,
        train=workload.data(),
        loss="cross_entropy",
        optimizer=fb.optim("sgd", lr=LEARNING_RATE, momentum=MOMENTUM),
        batch_size=workload.batch_size,
        epochs=workload.epochs(blocks),
        max_steps=workload.steps(blocks),
        loading={"drop_last": True},
        # The peer writes none either.
        checkpoints=fb.Checkpoints(every_epochs=None),
        observe={"progress": "none"},
        # Waiting for its turn is not a sign of trouble.
        recovery={"heartbeat_timeout": 600},
        callbacks=[TakeTurns(directory, workload.warm, workload.timed)],
        cluster=where,
        run_dir=directory / "run",
    )


if __name__ == "__main__":
    name, blocks, *affinity, directory = sys.argv[1:]
    where = fb.Local(WORKERS, affinity=affinity[0]) if affinity else cluster()
    main(name, int(blocks), where, Path(directory))
