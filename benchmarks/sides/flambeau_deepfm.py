"""Our side of the sparse-step benchmark: tables on a server, weights there or not, and one worker.

flambeau_deepfm.py STRATEGY BLOCKS DIRECTORY
"""

import sys
from pathlib import Path

from deepfm import (
    BATCH_ROWS,
    DIM,
    LEARNING_RATE,
    STEPS_PER_EPOCH,
    TABLE_LEARNING_RATE,
    TIMED,
    WARM,
    DeepFM,
    data,
)
from flambeau_fit import TakeTurns

import flambeau as fb
from flambeau.embeddings import SparseEmbedding, TableSpec


def build() -> DeepFM:
    """The model; its rows are fetched while the batch before computes."""
    return DeepFM(
        SparseEmbedding(TableSpec("linear", 1), "sum", prefetch="ids"),
        SparseEmbedding(TableSpec("embedding", DIM), prefetch="ids"),
    )


STRATEGIES = {
    "parameter_server": fb.ParameterServer(consistency="asynchronous"),
    "hybrid": fb.Hybrid(consistency="asynchronous"),
}


def main(strategy: str, blocks: int, directory: Path) -> None:
    ids, labels = data()
    steps = blocks * (WARM + TIMED)
    fb.fit(
        build,
        train={"ids": ids, "label": labels},
        label="label",
        loss="bce",
        optimizer=fb.optim("adam", lr=LEARNING_RATE),
        table_optimizer=fb.optim("adagrad", lr=TABLE_LEARNING_RATE),
        batch_size=BATCH_ROWS,
        epochs=-(-steps // STEPS_PER_EPOCH),
        max_steps=steps,
        strategy=STRATEGIES[strategy],
        # The peer does neither.
        checkpoints=fb.Checkpoints(every_epochs=None),
        evaluation={"every_epochs": None},
        observe={"progress": "none"},
        # Waiting for its turn is not a sign of trouble.
        recovery={"heartbeat_timeout": 600},
        callbacks=[TakeTurns(directory, WARM, TIMED)],
        run_dir=directory / "run",
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
