"""Recommender models with fields in processes of their own."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy import QUIET

import flambeau as fb
from flambeau.models import LR, DCNv2, DeepFM

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "recommenders.md"
ROWS, FIELDS, DENSE = 3_000, 3, 2
COLUMNS = {"ids": fb.columns("C1:C3"), "dense": fb.columns("I1:I2")}


@pytest.fixture
def clicks(tmp_path: Path) -> str:
    """Parquet with texts, numbers and missing ids; whether the first two texts agree decides."""
    chance = np.random.default_rng(0)
    kinds = chance.integers(0, 4, size=(ROWS, FIELDS))
    numbers = chance.normal(size=(ROWS, DENSE)).astype(np.float32)
    score = np.where(kinds[:, 0] == kinds[:, 1], 3.0, -2.0) + numbers[:, 0]
    columns: dict[str, Any] = {
        f"C{field + 1}": [None if field == 2 and kind == 0 else f"id{kind}" for kind in each]
        for field, each in enumerate(kinds.T)
    }
    columns |= {f"I{at + 1}": each for at, each in enumerate(numbers.T)}
    columns["label"] = (chance.random(ROWS) < 1 / (1 + np.exp(-score))).astype(np.float32)
    path = tmp_path / "clicks.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=250)
    return str(path)


def train(model: Any, clicks: str, run_dir: Path, **settings: Any) -> Any:
    return fb.fit(
        model,
        clicks,
        valid=clicks,
        inputs=COLUMNS,
        label="label",
        loss="bce",
        metrics=["auc"],
        optimizer=fb.optim("adam", lr=0.01),
        table_optimizer=fb.optim("adagrad", lr=0.2),
        batch_size=50,
        observe=QUIET,
        run_dir=run_dir,
        **settings,
    )


def test_deepfm_learns_asynchronously_from_texts_with_missing_ids(
    clicks: str, tmp_path: Path
) -> None:
    result = train(
        DeepFM(fields=FIELDS, dense=DENSE, embedding_dim=4, hidden=(16,)),
        clicks,
        tmp_path / "run",
        epochs=3,
        strategy=fb.ParameterServer(servers=1, consistency="asynchronous"),
        cluster=fb.Local(workers=2),
    )
    assert result.metrics["auc"] > 0.85
    assert result.report["rows"]["applied"] == 3 * ROWS
    clients = result.report["clients"].values()
    assert sum(client["prefetch_misses"] for client in clients) == 0
    times = result.report["seconds_per_step"]
    assert set(times) == {"data", "dense", "sparse", "wait"}
    assert all(seconds > 0.0 for seconds in times.values())
    assert len(result.predict(clicks)) == ROWS


def test_dcnv2_learns_in_lockstep_with_tables_on_servers(clicks: str, tmp_path: Path) -> None:
    result = train(
        DCNv2(fields=FIELDS, dense=DENSE, embedding_dim=4, hidden=(16,)),
        clicks,
        tmp_path / "run",
        epochs=3,
        strategy=fb.Hybrid(servers=1, consistency="synchronous"),
        cluster=fb.Local(workers=2),
    )
    assert result.metrics["auc"] > 0.85
    assert result.report["rows"]["applied"] == 3 * ROWS


def test_logistic_regression_takes_the_same_columns_without_servers(
    clicks: str, tmp_path: Path
) -> None:
    result = train(LR(fields=FIELDS, dense=DENSE), clicks, tmp_path / "run", epochs=1)
    assert 0.5 < result.metrics["auc"] < 0.85
    times = result.report["seconds_per_step"]
    assert times["sparse"] > 0.0
    assert times["wait"] == 0.0


def test_the_ten_lines_of_the_guide_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"fb": fb}
    for block in blocks[:2]:
        exec(compile(block, str(PAGE), "exec"), names)
    assert float(capsys.readouterr().out.split()[-1]) > 0.8
