"""Asynchronous trainings on files that are a single shard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from toy import QUIET

import flambeau as fb
from flambeau.config import FileData
from flambeau.models import LR

#: Rows of each file, which have about 200 bytes as text.
ROWS, BATCH = 5_003, 64
BATCHES = -(-ROWS // BATCH)


def columns() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, numbers and ids of a click log: 1 MB as text."""
    chance = np.random.default_rng(0)
    return (
        chance.integers(0, 2, ROWS),
        chance.integers(0, 100, (ROWS, 13)),
        chance.integers(0, 1000, (ROWS, 26)),
    )


def as_table() -> pa.Table:
    labels, numbers, ids = columns()
    named = {"label": labels.astype(np.float32)}
    named |= {f"I{at + 1}": each.astype(np.float32) for at, each in enumerate(numbers.T)}
    return pa.table(named | {f"C{at + 1}": each for at, each in enumerate(ids.T)})


def write_csv(path: str) -> None:
    pyarrow.csv.write_csv(as_table(), path)


def write_parquet(path: str) -> None:
    pq.write_table(as_table(), path)


def write_criteo(path: str) -> None:
    lines = [
        "\t".join([str(label), *map(str, numbers), *(f"{each:08x}" for each in ids)])
        for label, numbers, ids in zip(*columns(), strict=True)
    ]
    Path(path).write_text("\n".join(lines))


def write_libsvm(path: str) -> None:
    labels, _, ids = columns()
    lines = [
        f"{label} " + " ".join(f"{each + 1}:0.5" for each in np.unique(row))
        for label, row in zip(labels, ids, strict=True)
    ]
    Path(path).write_text("\n".join(lines))


FIELDS: dict[str, Any] = {
    "inputs": {"ids": fb.columns("C1:C26"), "dense": fb.columns("I1:I13")},
    "model": LR(fields=26, dense=13),
}
FILES: dict[str, tuple[Callable[[str], None], dict[str, Any]]] = {
    "libsvm": (write_libsvm, {"model": LR(fields=None, dense=0), "inputs": {"ids": "features"}}),
    "csv": (write_csv, FIELDS),
    "criteo": (write_criteo, FIELDS),
    "parquet": (write_parquet, FIELDS),
}


@pytest.mark.parametrize("form", FILES)
def test_both_workers_train_on_a_file_of_one_shard(tmp_path: Path, form: str) -> None:
    write, settings = FILES[form]
    path = str(tmp_path / f"train.{form}")
    write(path)
    result = fb.fit(
        train=FileData(path=path, format=form),
        label="label",
        loss="bce",
        batch_size=BATCH,
        cluster=fb.Local(2),
        strategy=fb.ParameterServer(servers=1, consistency="asynchronous"),
        observe=QUIET,
        run_dir=tmp_path / "run",
        **settings,
    )
    report = result.report
    pushes = [client["pushes"] for client in report["clients"].values()]
    assert sum(pushes) == report["step"] == BATCHES
    # Of the first tasks each worker gets one, whichever is faster afterwards.
    assert min(pushes) >= BATCHES // 8 - 1
    assert report["rows"]["applied"] == report["rows"]["read"] == ROWS
    assert report["rows_per_second"] > 0
    assert sum(report["seconds_per_step"].values()) > 0
