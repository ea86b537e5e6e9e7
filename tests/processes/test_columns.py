"""Columns as people have them: integers that are numbers, gaps, large keys, data frames."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn
from toy import QUIET, Net

import flambeau as fb
from flambeau.embeddings import SparseEmbedding, TableSpec

LARGE = 2**63


def write_csv(path: Path, rows: int = 200) -> Path:
    """Integers with a gap in each fifth row, and keys beyond int64."""
    rng = np.random.default_rng(0)
    lines = ["key,label," + ",".join(f"n{place}" for place in range(6))]
    for row in range(rows):
        numbers = [str(value) for value in rng.integers(-3, 4, 6)]
        numbers[row % 6] = "" if row % 5 == 0 else numbers[row % 6]
        lines.append(f"{LARGE + row},{row % 3},{','.join(numbers)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_integers_with_gaps_train_a_model_of_numbers_and_are_predicted(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "rows.csv")
    result = fb.fit(
        Net(),
        str(data),
        valid=str(data),
        inputs={"x": ["n0:n5"]},
        label="label",
        keys=["key"],
        fill=0.0,
        loss="cross_entropy",
        metrics=["accuracy"],
        cluster=fb.Local(2),
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    expected = pytest.approx(result.metrics["loss"], rel=1e-12)  # sums of two workers
    assert result.evaluate(str(data))["loss"] == expected
    predictions = result.predict(str(data))
    assert predictions["key"].to_pylist() == [LARGE + row for row in range(200)]
    row = {f"n{place}": [None if place == 0 else 1] for place in range(6)}
    served = fb.Predictor.load(tmp_path / "run").predict(row)
    assert "nan" not in str(served.to_pydict())


class Cities(nn.Module):
    """Texts in a table, numbers with gaps, and a vector in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = SparseEmbedding(TableSpec("city", 4), "sum")
        self.layer = nn.Linear(2 + 3 + 4, 1)

    def forward(self, x: Tensor, vector: Tensor, city: Tensor) -> Tensor:
        result: Tensor = self.layer(torch.cat([x, vector, self.rows(city)], 1)).squeeze(1)
        return result


def cities(rows: int = 120) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "user": [f"u{row}" for row in range(rows)],
        "age": [None if row % 7 == 0 else row for row in range(rows)],
        "price": rng.normal(size=rows).tolist(),
        "vector": [row.tolist() for row in rng.normal(size=(rows, 3))],
        "city": [None if row % 9 == 0 else f"c{row % 11}" for row in range(rows)],
        "label": [row % 2 for row in range(rows)],
    }


def test_a_pandas_frame_trains_and_frames_of_all_kinds_are_predicted(tmp_path: Path) -> None:
    columns = cities()
    frame = pd.DataFrame(columns, index=range(1000, 1120))
    arguments: dict[str, Any] = {
        "inputs": {"x": ["age", "price"], "vector": "vector", "city": ["city"]},
        "label": "label",
        "keys": ["user"],
        "fill": 0.0,
        "loss": "bce",
        "metrics": ["auc"],
        "cluster": fb.Local(2),
        "strategy": fb.Hybrid(),
        "observe": QUIET,
        "run_dir": tmp_path / "run",
    }
    result = fb.fit(Cities, frame, valid=pl.DataFrame(columns), **arguments)
    assert result.report["rows"]["applied"] == 120
    assert result.evaluate()["loss"] == pytest.approx(result.metrics["loss"], rel=1e-5)
    expected = result.predict(pa.table(columns))
    assert expected["user"].to_pylist() == columns["user"]
    for same in (frame, pl.DataFrame(columns)):
        assert result.predict(same).equals(expected)
    served = fb.Predictor.load(tmp_path / "run").predict(frame)
    assert np.allclose(served["probability"], expected["probability"], atol=1e-6)
    exported = fb.Predictor.load(result.export(tmp_path / "out")).predict(frame)
    assert np.allclose(exported["probability"], expected["probability"], atol=1e-6)
    again = fb.fit(Cities, frame, **{**arguments, "epochs": 2})
    assert again.report["step"] == 2 * result.report["step"]


class OneCity(nn.Module):
    """One id in each row, not pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.layer = SparseEmbedding(TableSpec("city", dim=4)), nn.Linear(4, 1)

    def forward(self, city: Tensor) -> Tensor:
        result: Tensor = self.layer(self.rows(city)).squeeze(1)
        return result


def test_rows_without_an_id_are_trained_on_and_predicted(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    lines = [f"{'' if row == 150 else row % 5},{row % 2}" for row in range(200)]
    data.write_text("\n".join(["city,bought", *lines]) + "\n")
    result = fb.fit(
        OneCity, str(data), label="bought", loss="bce", observe=QUIET, run_dir=tmp_path / "run"
    )
    assert result.evaluate(str(data))["loss"] < 1.0
    served = fb.Predictor.load(tmp_path / "run").predict({"city": [None, 1]})
    predicted = result.predict(str(data))["probability"].to_pylist()
    expected = [predicted[150], predicted[1]]
    assert served["probability"].to_pylist() == pytest.approx(expected, abs=1e-6)
