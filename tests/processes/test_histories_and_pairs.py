"""Models with histories and pairs, trained by several processes from files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from toy import QUIET, rows_of

import flambeau as fb
from flambeau.data.text_hash import hash_texts
from flambeau.models import DIN, TwoTower

GROUPS, PER_GROUP = 4, 5


def write_rows(path: Path, rows: int, seed: int) -> Path:
    """Users look at items of their group; items are texts, and histories lists of them."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, GROUPS, rows)
    of_item = np.where(rng.random(rows) < 0.5, group, rng.integers(0, GROUPS, rows))
    lengths = rng.integers(0, 4, rows)
    table = {
        "user": [f"user {user}" for user in rng.integers(0, 30, rows)],
        "item": [_name(rng, item) for item in of_item],
        "history": [
            [_name(rng, own) for _ in range(n)] for own, n in zip(group, lengths, strict=True)
        ],
        "own": [_name(rng, own) for own in group],
        "group": [f"group {own}" for own in group],
        "click": (group == of_item).astype(np.float32),
    }
    pq.write_table(pa.table(table), path, row_group_size=100)
    return path


def _name(rng: np.random.Generator, group: int) -> str:
    return f"item {group}-{rng.integers(PER_GROUP)}"


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


def fit(model: Any, tmp_path: Path, **settings: Any) -> Any:
    arguments = {
        "train": str(write_rows(tmp_path / "train.parquet", 800, 0)),
        "valid": str(write_rows(tmp_path / "valid.parquet", 200, 1)),
        "optimizer": fb.optim("adam", lr=0.01),
        "table_optimizer": fb.optim("adagrad", lr=0.1),
        "batch_size": 40,
        "epochs": 3,
        "cluster": fb.Local(2),
        "observe": QUIET,
        "run_dir": tmp_path / "run",
    }
    return fb.fit(model, **{**arguments, **settings})


def test_histories_are_learnt_by_two_workers_and_a_server(tmp_path: Path) -> None:
    result = fit(
        DIN(
            1, embedding_dim=8, hidden=(32,), attention=(16,), table={"initializer": {"scale": 0.5}}
        ),
        tmp_path,
        inputs={"ids": ["user"], "item": "item", "history": "history"},
        hash={"history": "item"},
        label="click",
        loss="bce",
        metrics=["auc", "recall@3"],
        group="user",
        epochs=6,
        strategy=fb.ParameterServer(servers=1),
    )
    assert result.metrics["auc"] > 0.7
    assert 0.0 < result.metrics["recall@3"] <= 1.0
    names = [f"item {group}-{item}" for group in range(GROUPS) for item in range(PER_GROUP)]
    ids = hash_texts(pa.array(names), "item").tolist()
    assert rows_of(result)["item"].keys() == set(ids)
    predicted = result.predict(str(tmp_path / "valid.parquet"))
    label = pq.read_table(tmp_path / "valid.parquet")["click"].to_numpy() > 0.5
    scores = predicted["probability"].to_numpy()
    assert scores[label].mean() > scores[~label].mean() + 0.1


@pytest.mark.parametrize("strategy", [fb.Hybrid(), fb.ParameterServer(consistency="asynchronous")])
def test_towers_find_items_and_their_vectors_are_written(tmp_path: Path, strategy: Any) -> None:
    result = fit(
        TwoTower(1, 1, 8, (16,), 8, temperature=0.1, buckets=256),
        tmp_path,
        inputs={"user": "group", "item": "own"},
        hash={"own": "item"},
        loss="in_batch_softmax",
        metrics=["recall@10"],
        strategy=strategy,
    )
    assert result.metrics["recall@10"] > 0.6  # 10 of 40 are of the right group
    assert result.model.logits.frequency.batches.item() > 0
    out = tmp_path / "items.parquet"
    assert result.export_vectors(str(tmp_path / "valid.parquet"), out) == 200
    written = pq.read_table(out)
    own = pq.read_table(tmp_path / "valid.parquet")["own"].combine_chunks()
    assert written["id"].to_pylist() == hash_texts(own, "item").tolist()
    lengths = np.linalg.norm(np.stack(written["vector"].to_numpy()), axis=1)
    assert lengths == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("consistency", ["synchronous", "asynchronous"])
def test_with_fewer_negatives_probabilities_stay_right_and_rows_are_counted(
    tmp_path: Path, consistency: Any
) -> None:
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=(4000, 1)).astype(np.float32), "y": np.zeros(4000, np.float32)}
    columns["y"][rng.random(4000) < 1 / (1 + np.exp(2 - columns["x"][:, 0]))] = 1.0
    result = fb.fit(
        nn.Sequential(nn.Linear(1, 1), nn.Flatten(0)),
        columns,
        columns,
        inputs={"input": "x"},
        label="y",
        loss="bce",
        metrics=["calibration"],
        loading={"keep_negatives": 0.25},
        optimizer=fb.optim("adam", lr=0.02),
        batch_size=50,
        epochs=3,
        strategy=fb.ParameterServer(servers=1, consistency=consistency),
        cluster=fb.Local(2),
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    assert result.metrics["calibration"] == pytest.approx(1.0, abs=0.3)  # without it, 2.6
    predicted = result.predict({"x": columns["x"]})["probability"].to_numpy()
    assert predicted.mean() == pytest.approx(columns["y"].mean(), rel=0.3)
    rows = result.report["rows"]
    assert rows["read"] == 12000 == sum(rows[name] for name in rows if name != "read")
    negatives = 3 * int((columns["y"] == 0).sum())
    assert rows["left_out"] == pytest.approx(0.75 * negatives, rel=0.05)
