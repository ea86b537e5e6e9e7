"""Trainings on files of sparse text."""

import json
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn
from toy import QUIET

import flambeau as fb
from flambeau.config import FileData
from flambeau.embeddings import SparseEmbedding, TableSpec

IDS = 20


class Logistic(nn.Module):
    """A weight for each id, in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = SparseEmbedding(TableSpec("weights", 1), "sum")
        self.bias = nn.Linear(1, 1)

    def forward(self, features: fb.Jagged) -> Tensor:
        rows: Tensor = self.weights(features)
        return self.bias(rows).squeeze(1)  # type: ignore[no-any-return]


def write_libsvm(path: Path, rows: int, seed: int, bad: int = 0) -> str:
    """Rows with the label 1, not -1, if more of their ids are odd than even (in the file)."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        ids = rng.choice(IDS, 5, replace=False)
        score = np.where(ids % 2 == 0, 1, -1).sum()
        lines.append(f"{1 if score > 0 else -1} " + " ".join(f"{number + 1}:1" for number in ids))
    lines[1:1] = ["1 no row"] * bad
    path.write_text("\n".join(lines))
    return str(path)


def test_a_model_learns_from_libsvm_and_bad_rows_are_in_the_report(tmp_path: Path) -> None:
    train = write_libsvm(tmp_path / "train.libsvm", 2000, seed=0, bad=3)
    valid = write_libsvm(tmp_path / "valid.svm", 500, seed=1)
    result = fb.fit(
        Logistic(),
        FileData(path=train, options={"on_bad_row": "skip", "shard_bytes": 5000}),
        valid=valid,
        label="label",
        loss="bce",
        metrics=("accuracy", "logloss"),
        optimizer=fb.optim("adam", lr=0.05),
        epochs=3,
        batch_size=32,
        cluster=fb.Local(2),
        strategy=fb.ParameterServer(consistency="asynchronous"),
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    assert result.metrics["accuracy"] > 0.98
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["rows"]["applied"], report["rows"]["skipped"]) == (6000, 3)
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "3 bad rows of the data were left out" in events
    assert events.count("the labels are -1 and 1; they are learned as 0 and 1") == 1
    assert result.evaluate(valid)["logloss"] == pytest.approx(result.metrics["logloss"])
    assert set(result.predict(valid)["label"].to_pylist()) == {-1.0, 1.0}
