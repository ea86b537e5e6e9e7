"""Metrics of parts, merged, against those of one pass over all rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor, nn

from flambeau.checkpoint import RunDirectory
from flambeau.config import Binding, CodeRef, FileData, JobSettings
from flambeau.inference.parts import PART_ROWS
from flambeau.runs.evaluation import Evaluation, MergedScores, cut_for_evaluation
from flambeau.runs.trained_run import open_given

METRICS = ("auc", "gauc", "accuracy", "logloss", "recall@2", "rmse")


class Line(nn.Module):
    """One output for two columns."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return 0.7 * a - 1.3 * b


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    table = {name: rng.normal(size=103).astype(np.float32) for name in ("a", "b", "weight")}
    table["weight"] = np.abs(table["weight"])
    label = (table["a"] - table["b"] > 0).astype(np.int64)
    rows = {**table, "label": label, "user": rng.integers(0, 9, 103)}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=7)
    return rows


def settings_of(data: Path, batch_size: int, **evaluation: Any) -> JobSettings:
    return JobSettings(
        model=CodeRef(path="mine:Net"),
        train=FileData(path=str(data)),
        loss="bce",
        batch_size=batch_size,
        evaluation=evaluation,
        binding=Binding(label="label", weight="weight", group="user"),
    )


@pytest.mark.parametrize("form", ["files", "columns"])
@pytest.mark.parametrize("exact_rows", [1000, 50])
def test_merged_parts_have_the_metrics_of_all_rows(
    rows: dict[str, np.ndarray], tmp_path: Path, form: str, exact_rows: int
) -> None:
    run, data = RunDirectory(tmp_path / "run"), tmp_path / "rows.parquet"
    settings = settings_of(data, batch_size=4, exact_rows=exact_rows)
    source = open_given(run, settings, str(data) if form == "files" else rows)
    evaluation = Evaluation(run, settings, Line(), source, METRICS)
    parts = cut_for_evaluation(source, settings, workers=2)
    assert len(parts) > 4
    merged, counted = MergedScores(run, settings, METRICS), []
    for part in sorted(parts, key=lambda part: -part.index):  # the last one first
        merged.add(part.index, evaluation.part_state(part, counted.append))
    whole = evaluation.scores()
    assert sum(counted) == merged.scores().rows == whole.rows == 103
    assert list(merged.scores().metrics) == list(whole.metrics)
    assert merged.scores().metrics == pytest.approx(whole.metrics, rel=1e-6)


def test_rows_by_number_are_cut_into_whole_batches(rows: dict[str, np.ndarray]) -> None:
    run = RunDirectory("nowhere")
    settings = settings_of(Path("rows.parquet"), batch_size=10)
    source = open_given(run, settings, rows)
    parts = cut_for_evaluation(source, settings, workers=2)
    assert [(part.first, part.last) for part in parts][:2] == [(0, 20), (20, 40)]
    assert parts[-1].last == 103
    huge = settings_of(Path("rows.parquet"), batch_size=2 * PART_ROWS)
    assert len(cut_for_evaluation(source, huge, workers=2)) == 1


def test_several_tasks_keep_their_order(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, a: Tensor) -> dict[str, Tensor]:
            return {"view": a, "buy": -a}

    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=40).astype(np.float32)}
    rows |= {name: rng.integers(0, 2, 40) for name in ("v", "b")}
    settings = JobSettings(
        model=CodeRef(path="mine:Net"),
        train=FileData(path="x"),
        loss={"view": "bce", "buy": "bce"},
        batch_size=4,
        binding=Binding(label={"view": "v", "buy": "b"}),
    )
    run = RunDirectory(tmp_path)
    source = open_given(run, settings, rows)
    evaluation = Evaluation(run, settings, Both(), source, ("accuracy",))
    merged = MergedScores(run, settings, ("accuracy",))
    for part in cut_for_evaluation(source, settings, workers=1):
        merged.add(part.index, evaluation.part_state(part, lambda rows: None))
    assert list(merged.scores().metrics) == ["loss", "view/accuracy", "buy/accuracy"]
    assert merged.scores().metrics == pytest.approx(evaluation.scores().metrics)
