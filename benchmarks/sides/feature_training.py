"""Train DLRM on raw logs with `features=`, or on the files that the same pipeline has prepared.

feature_training.py raw|prepared CORES LOGS FOLDER

Prints one line of JSON: samples per second of the workers, without start-up, and rows.
"""

import json
import sys
import tempfile
from pathlib import Path

import flambeau as fb
import flambeau.features as ft
from flambeau.models import DLRM

COLUMNS = {"ids": "C1:C26", "dense": "I1:I13"}


def main(kind: str, cores: int, logs: str, folder: Path) -> None:
    quiet = {"progress": "none"}
    pipeline = ft.criteo(min_count=10)
    parts = pipeline.fit_transform(f"{logs}/day_*", out=folder / "prepared", observe=quiet)
    prepared = kind == "prepared"
    result = fb.fit(
        DLRM(),
        parts.train if prepared else f"{logs}/day_*",
        features=None if prepared else pipeline,
        inputs=COLUMNS,
        label="label",
        loss="bce",
        batch_size=2048,
        epochs=1,
        strategy=fb.Hybrid(consistency="asynchronous"),
        cluster=fb.Local(cores),
        checkpoints=fb.Checkpoints(every_epochs=None),
        observe=quiet,
        run_dir=tempfile.mkdtemp(dir=folder),
    )
    speed = result.report["rows_per_second"]
    print(json.dumps({"rows_per_second": speed, "rows": sum(parts.rows.values())}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
