"""Models with dense fields learn the same wherever their tables and weights are."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from toy import QUIET, assert_same_tables, assert_same_weights, rows_of

import flambeau as fb
import flambeau.features as ft
from flambeau.checkpoint import RunDirectory
from flambeau.config.job_file import load_job_file
from flambeau.driver.fit import run_file
from flambeau.errors import FlambeauError
from flambeau.inference.export import ExportOptions
from flambeau.models import DeepFM
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

ROWS = 303
SIZES = {"day": 7, "user": 200, "place": 5, "item": 100}


def data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {name: rng.integers(0, n, ROWS) for name, n in SIZES.items()}
    columns["x"] = rng.normal(size=ROWS)
    score = columns["day"] % 2 * 2.0 - 1.0 + columns["user"] % 2 + 0.3 * columns["x"]
    columns["label"] = (score > 0.5).astype(np.float64)
    return columns


def train(path: Path, workers: int, batch_size: int, **changes: Any) -> Any:
    below, double = changes.pop("dense_below", 10), {"dtype": "fp64"}
    model = DeepFM(4, 1, 3, (8,), sizes=SIZES, dense_below=below, table=double).double()
    options: dict[str, Any] = {
        "inputs": {"ids": list(SIZES), "dense": "x"},
        "label": "label",
        "loss": "bce",
        "metrics": ["auc"],
        "optimizer": fb.optim("adam", lr=0.02),
        "table_optimizer": fb.optim("adagrad", lr=0.1),
        "epochs": 3,
        "observe": QUIET,
        "cluster": fb.Local(workers),
        "batch_size": batch_size,
        "run_dir": path,
        **changes,
    }
    return fb.fit(model, data(), data(), **options)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(0)
    return train(tmp_path_factory.mktemp("alone") / "run", 1, 24)


@pytest.fixture(autouse=True)
def _same_start() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "strategy",
    [
        fb.Hybrid(servers=2, consistency="synchronous"),
        fb.ParameterServer(servers=2),
    ],
    ids=["hybrid", "parameter_server"],
)
def test_two_workers_equal_one_with_every_strategy(
    alone: Any, tmp_path: Path, strategy: Any
) -> None:
    result = train(tmp_path / "run", 2, 12, strategy=strategy)
    assert_same_weights(alone, result)
    assert_same_tables(alone, result)
    assert result.metrics["auc"] == pytest.approx(alone.metrics["auc"], abs=1e-12)
    columns = {"user", "item"}
    distinct = sum(len(np.unique(data()[name])) for name in columns)
    assert len(rows_of(result)["embeddings"]) == distinct, "small fields have no rows"


def test_a_model_whose_fields_are_all_dense_needs_no_servers(tmp_path: Path) -> None:
    one = train(tmp_path / "one", 1, 24, dense_below=1000)
    torch.manual_seed(0)
    two = train(tmp_path / "two", 2, 12, dense_below=1000, strategy=fb.AllReduce())
    assert_same_weights(one, two)
    assert not rows_of(two)


@pytest.mark.parametrize("strategy", [fb.Hybrid, fb.ParameterServer])
def test_rows_of_the_other_fields_are_fetched_early(tmp_path: Path, strategy: Any) -> None:
    result = train(tmp_path / "run", 2, 12, strategy=strategy(consistency="asynchronous"))
    assert result.report["rows"]["applied"] == 3 * ROWS
    assert result.metrics["auc"] > 0.8
    clients = result.report["clients"].values()
    assert sum(client["prefetch_hits"] for client in clients) > 0
    assert sum(client["prefetch_misses"] for client in clients) == 0


def test_scores_are_the_same_from_run_and_export(alone: Any, tmp_path: Path) -> None:
    assert alone.evaluate(data())["auc"] == pytest.approx(alone.metrics["auc"], abs=1e-12)
    expected = np.array(alone.predict(data())["probability"].to_pylist())
    predictor = fb.Predictor.load(alone.export(tmp_path / "export"))
    rows = [{name: column[n].item() for name, column in data().items()} for n in range(5)]
    found = np.array(predictor.predict(rows)["probability"].to_pylist())
    np.testing.assert_allclose(found, expected[:5], rtol=0, atol=1e-9)


def test_a_job_file_takes_the_sizes_of_prepared_features(tmp_path: Path) -> None:
    logs = tmp_path / "logs.parquet"
    pq.write_table(pa.table(data()), logs)
    pipeline = ft.Pipeline([ft.Categorify(list(SIZES))])
    parts = pipeline.fit_transform(str(logs), out=tmp_path / "prepared")
    job = {
        "model": "deepfm",
        "args": {
            "fields": 4,
            "dense": 1,
            "embedding_dim": 3,
            "hidden": [8],
            "sizes": "features",
            "dense_below": 10,
        },
        "train": parts.train,
        "inputs": {"ids": ["item", "day", "user", "place"], "dense": "x"},
        "label": "label",
        "loss": "bce",
        "observe": QUIET,
        "run_dir": str(tmp_path / "run"),
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    result = run_file(load_job_file(tmp_path / "job.yaml"), tmp_path)
    sizes = ft.Pipeline.load(tmp_path / "prepared" / "pipeline").sizes_
    weight = result.model.embeddings.dense.weight
    assert weight.shape == (sizes["day"] + sizes["place"], 3)
    assert result.model.embeddings.rows.only == (0, 2)
    result.export(tmp_path / "export")
    raw = {name: column[:3] for name, column in data().items()}
    raw["day"] = np.array([99, -1, 3])  # never seen: numbered as such, and no error
    served = fb.Predictor.load(tmp_path / "export").predict(raw)
    expected = result.predict(raw)
    assert served["probability"].to_pylist() == pytest.approx(expected["probability"].to_pylist())


@pytest.mark.parametrize("inside_mb", [0, 64])
def test_missing_ids_read_as_zeros_also_in_an_export(tmp_path: Path, inside_mb: float) -> None:
    gaps = pa.table(data())
    for name in ("day", "user"):
        missing = pa.array(np.arange(ROWS) % 5 == 3)
        column = pc.if_else(missing, pa.scalar(None, pa.int64()), gaps[name].combine_chunks())
        gaps = gaps.set_column(gaps.schema.get_field_index(name), name, column)
    logs = tmp_path / "logs.parquet"
    pq.write_table(gaps, logs)
    result = fb.fit(
        DeepFM(4, 1, 3, (8,), sizes=SIZES, dense_below=10),
        str(logs),
        inputs={"ids": list(SIZES), "dense": "x"},
        label="label",
        loss="bce",
        epochs=3,
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    expected = result.predict(str(logs))["probability"].to_pylist()
    run = RunDirectory(tmp_path / "run")
    options = ExportOptions(inside_mb=inside_mb)
    export_run(run, read_settings(run), "latest", tmp_path / "export", options)
    served = fb.Predictor.load(tmp_path / "export").predict(gaps)
    assert served["probability"].to_pylist() == pytest.approx(expected, abs=1e-5)


def test_an_id_without_a_row_ends_the_job_with_the_fields_name(tmp_path: Path) -> None:
    wrong = data()
    wrong["place"][17] = 5
    with pytest.raises(FlambeauError, match=r"field 'place' has the id 5, .* 0 to 4"):
        fb.fit(
            DeepFM(4, 1, 3, (8,), sizes=SIZES, dense_below=10),
            wrong,
            inputs={"ids": list(SIZES), "dense": "x"},
            label="label",
            loss="bce",
            observe=QUIET,
            run_dir=tmp_path / "run",
        )
