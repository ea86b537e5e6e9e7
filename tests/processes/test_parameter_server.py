"""Training with servers: what it equals, and what it leaves behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy import (
    QUIET,
    Net,
    SparseNet,
    assert_same_tables,
    assert_same_weights,
    make_clicks,
    make_data,
    rows_of,
)

import flambeau as fb
from flambeau.config import OptimizerSpec

OPTIMIZERS = {
    "sgd": (fb.optim("sgd", lr=0.1, momentum=0.9), fb.optim("momentum", lr=0.1)),
    "adam": (fb.optim("adam", lr=0.01), fb.optim("adam", lr=0.02)),
    "adagrad": (fb.optim("adagrad", lr=0.05), fb.optim("adagrad", lr=0.1)),
}


def train_sparse(
    path: Path,
    strategy: Any,
    workers: int,
    batch_size: int,
    *,
    kind: str = "adam",
    prefetch: bool = False,
    **changes: Any,
) -> Any:
    dense, table = OPTIMIZERS[kind]
    arguments: dict[str, Any] = {
        "loss": "bce",
        "label": "label",
        "optimizer": dense,
        "table_optimizer": table,
        "batch_size": batch_size,
        "epochs": 3,
        "strategy": strategy,
        "cluster": fb.Local(workers),
        "observe": QUIET,
        "run_dir": path,
        **changes,
    }
    return fb.fit(SparseNet(prefetch), make_clicks(), **arguments)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_synchronous_workers_equal_one_process_with_the_whole_batch(
    kind: str, tmp_path: Path
) -> None:
    alone = train_sparse(tmp_path / "alone", fb.AllReduce(), 1, 24, kind=kind)
    served = train_sparse(tmp_path / "served", fb.ParameterServer(servers=2), 3, 8, kind=kind)
    assert_same_weights(alone, served)
    assert_same_tables(alone, served)
    assert served.report["rows"] == {"read": 303, "applied": 303, "dropped": 0, "repeated": 0}


def test_gradients_are_clipped_as_one_over_all_workers_and_shards(tmp_path: Path) -> None:
    limits = {"clip_norm": 0.05, "clip_value": 0.02}
    alone = train_sparse(tmp_path / "alone", fb.AllReduce(), 1, 24, compute=limits)
    strategy = fb.ParameterServer(servers=2)
    served = train_sparse(tmp_path / "served", strategy, 3, 8, compute=limits)
    free = train_sparse(tmp_path / "free", fb.AllReduce(), 1, 24)
    assert_same_weights(alone, served)
    assert_same_tables(alone, served)
    difference = free.model.layers[0].weight - alone.model.layers[0].weight
    assert difference.abs().max() > 1e-3, "the limits changed nothing"


@pytest.mark.parametrize("consistency", ["asynchronous", "bounded"])
def test_one_free_worker_that_prefetches_equals_the_sequential_result(
    consistency: Any, tmp_path: Path
) -> None:
    alone = train_sparse(tmp_path / "alone", fb.AllReduce(), 1, 16)
    strategy = fb.ParameterServer(servers=2, consistency=consistency)
    free = train_sparse(tmp_path / "free", strategy, 1, 16, prefetch=True)
    assert_same_weights(alone, free, exactly=True)
    assert_same_tables(alone, free, exactly=True)
    client = free.report["clients"]["0"]
    assert client["prefetch_hits"] > 0
    assert client["prefetch_misses"] == 0


@pytest.mark.parametrize("consistency", ["asynchronous", "synchronous"])
def test_hybrid_trains_dense_weights_among_workers_and_tables_on_servers(
    consistency: Any, tmp_path: Path
) -> None:
    strategy = fb.Hybrid(servers=2, consistency=consistency)
    result = train_sparse(tmp_path / "hybrid", strategy, 2, 12, prefetch=True)
    if consistency == "synchronous":
        alone = train_sparse(tmp_path / "alone", fb.AllReduce(), 1, 24)
        assert_same_weights(alone, result)
        assert_same_tables(alone, result)
    assert result.report["rows"]["applied"] == 303
    assert rows_of(result)["item"]


def test_free_workers_train_every_row_once_and_learn(tmp_path: Path) -> None:
    x, y = make_data(600)
    result = fb.fit(
        Net(),
        (x[:500], y[:500]),
        (x[500:], y[500:]),
        loss="cross_entropy",
        metrics=["accuracy"],
        optimizer=fb.optim("adam", lr=0.02),
        batch_size=16,
        epochs=5,
        strategy=fb.ParameterServer(servers=2, consistency="asynchronous"),
        cluster=fb.Local(3),
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    assert result.report["rows"] == {"read": 2500, "applied": 2500, "dropped": 0, "repeated": 0}
    assert result.report["step"] == 160
    assert result.metrics["accuracy"] > 0.8
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4, 5]


def test_the_model_of_a_result_reads_its_tables_where_they_are(tmp_path: Path) -> None:
    result = train_sparse(tmp_path / "run", fb.ParameterServer(servers=2), 2, 12)
    data = make_clicks()
    rows = rows_of(result)["user"]
    with torch.no_grad():
        found = result.model.users(torch.from_numpy(data["user"][:5]))
    for row, key in zip(found.numpy(), data["user"][:5].tolist(), strict=True):
        np.testing.assert_array_equal(row, rows[key])
    unknown = result.model.users(torch.tensor([123]))
    assert torch.equal(unknown, torch.zeros(1, 3, dtype=torch.float64))
    assert result.predict(data).num_rows == 101


@pytest.mark.parametrize("servers", [1, 3])
def test_a_run_goes_on_with_another_number_of_servers(servers: int, tmp_path: Path) -> None:
    whole = train_sparse(tmp_path / "whole", fb.ParameterServer(servers=2), 2, 12, epochs=3)
    path = tmp_path / "part"
    train_sparse(path, fb.ParameterServer(servers=2), 2, 12, epochs=2)
    resumed = train_sparse(path, fb.ParameterServer(servers=servers), 2, 12, epochs=3)
    assert_same_weights(whole, resumed)
    assert_same_tables(whole, resumed)


def test_a_free_run_goes_on_where_it_was(tmp_path: Path) -> None:
    strategy = fb.ParameterServer(servers=2, consistency="asynchronous")
    whole = train_sparse(tmp_path / "whole", strategy, 1, 12, epochs=3)
    path = tmp_path / "part"
    train_sparse(path, strategy, 1, 12, epochs=2)
    resumed = train_sparse(path, strategy, 1, 12, epochs=3)
    assert_same_weights(whole, resumed)
    assert_same_tables(whole, resumed)
    assert resumed.report["rows"]["applied"] == 303


def test_incremental_checkpoints_hold_the_same_as_full_ones(tmp_path: Path) -> None:
    checkpoints = {"every_steps": 2, "keep": 20, "incremental": True, "full_every": 4}
    plain = train_sparse(tmp_path / "plain", fb.ParameterServer(servers=2), 2, 12)
    strategy = fb.ParameterServer(servers=2)
    served = train_sparse(tmp_path / "run", strategy, 2, 12, checkpoints=checkpoints)
    assert_same_tables(plain, served)


def test_new_runs_begin_with_the_tables_of_another(tmp_path: Path) -> None:
    first = train_sparse(tmp_path / "first", fb.ParameterServer(servers=2), 2, 12)
    for name, strategy, workers in (
        ("served", fb.ParameterServer(servers=1), 2),
        ("alone", fb.AllReduce(), 1),
    ):
        then = train_sparse(
            tmp_path / name,
            strategy,
            workers,
            12,
            init_from=str(first.run_dir),
            max_steps=1,
            optimizer=fb.optim("sgd", lr=0.0),
            table_optimizer=OptimizerSpec(name="sgd", args={"lr": 0.0}),
        )
        assert_same_tables(first, then, exactly=True)


def test_encrypted_traffic_trains_the_same(tmp_path: Path) -> None:
    plain = train_sparse(tmp_path / "plain", fb.ParameterServer(), 2, 12)
    strategy = fb.ParameterServer(encrypt=True)
    encrypted = train_sparse(tmp_path / "encrypted", strategy, 2, 12)
    assert_same_weights(plain, encrypted, exactly=True)
    assert_same_tables(plain, encrypted, exactly=True)


@pytest.mark.parametrize("compression", ["bf16", "fp16"])
def test_gradients_may_travel_as_halves(compression: Any, tmp_path: Path) -> None:
    full = train_sparse(tmp_path / "full", fb.ParameterServer(), 2, 12, kind="sgd")
    strategy = fb.ParameterServer(compression=compression)
    halves = train_sparse(tmp_path / "halves", strategy, 2, 12, kind="sgd")
    for name, weight in full.model.state_dict().items():
        torch.testing.assert_close(weight, halves.model.state_dict()[name], rtol=0, atol=0.05)
    assert not torch.equal(full.model.layers[0].weight, halves.model.layers[0].weight)
