"""Columns as people have them: integers that are numbers, gaps, large keys."""

from pathlib import Path

import numpy as np
from toy import QUIET, Net

import flambeau as fb

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
    assert result.evaluate(str(data))["loss"] == result.metrics["loss"]
    predictions = result.predict(str(data))
    assert predictions["key"].to_pylist() == [LARGE + row for row in range(200)]
    row = {f"n{place}": [None if place == 0 else 1] for place in range(6)}
    served = fb.Predictor.load(tmp_path / "run").predict(row)
    assert "nan" not in str(served.to_pydict())
