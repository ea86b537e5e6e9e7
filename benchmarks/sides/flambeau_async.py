"""Our side of the hogwild benchmark: workers that run free, and a server.

flambeau_async.py WORKLOAD COMPRESSION DIRECTORY
"""

import sys
from pathlib import Path

from shared_turns import SharedTurn
from workloads import LEARNING_RATE, MOMENTUM, WORKLOADS, cluster

import flambeau as fb
from flambeau.training.callbacks import TrainingView

#: More than any measurement takes; the training ends when no turn is left.
EPOCHS = 1_000_000


class TakeTurns(fb.Callback):
    """Runs blocks of steps when it is told to, on all workers."""

    def __init__(self, directory: Path, warm: int, timed: int) -> None:
        self._directory, self._warm, self._timed = directory, warm, timed
        self._turn: SharedTurn | None = None

    def on_start(self, view: TrainingView) -> None:
        """Wait for the first turn."""
        self._turn = SharedTurn(self._directory, view.rank, view.workers, self._warm, self._timed)
        self._turn.wait()

    def on_step_end(self, view: TrainingView) -> None:
        """Report, and wait, when a block is over."""
        if not view.stopping and self._turn is not None and not self._turn.step_done():
            view.stop()


def main(name: str, compression: str, directory: Path) -> None:
    workload = WORKLOADS[name]
    fb.fit(
        workload.build,
        train=workload.data(),
        loss="cross_entropy",
        optimizer=fb.optim("sgd", lr=LEARNING_RATE, momentum=MOMENTUM),
        batch_size=workload.batch_size,
        epochs=EPOCHS,
        loading={"drop_last": True},
        strategy=fb.ParameterServer(consistency="asynchronous", compression=compression),
        # The peer does neither.
        checkpoints=fb.Checkpoints(every_epochs=None),
        evaluation={"every_epochs": None},
        observe={"progress": "none"},
        # Waiting for its turn is not a sign of trouble.
        recovery={"heartbeat_timeout": 600},
        callbacks=[TakeTurns(directory, workload.warm, workload.timed)],
        cluster=cluster(),
        run_dir=directory / "run",
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
