"""Training with servers: what it equals, and what it leaves behind."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
from flambeau.checkpoint import Manifest
from flambeau.config import OptimizerSpec
from flambeau.embeddings import SparseEmbedding, TableSpec
from flambeau.errors import ModelError

OPTIMIZERS = {
    "sgd": (fb.optim("sgd", lr=0.1, momentum=0.9), fb.optim("momentum", lr=0.1)),
    "adam": (fb.optim("adam", lr=0.01), fb.optim("adagrad", lr=0.1)),
    "lamb": (fb.optim("lamb", lr=0.05), fb.optim("sgd", lr=0.5)),
}

#: Trains in one process, without servers; each kind of training once for all tests.
Alone = Callable[..., Any]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    @functools.cache
    def train(batch_size: int, kind: str = "adam", **limits: float) -> Any:
        path = tmp_path_factory.mktemp("alone") / "run"
        return train_sparse(path, fb.AllReduce(), 1, batch_size, kind=kind, compute=limits or None)

    return train


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A synchronous run on two servers."""
    return train_sparse(
        tmp_path_factory.mktemp("served") / "run", fb.ParameterServer(servers=2), 3, 8
    )


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


def test_synchronous_workers_equal_one_process_with_the_whole_batch(
    alone: Alone, served: Any
) -> None:
    assert_same_weights(alone(24), served)
    assert_same_tables(alone(24), served)
    rows = {"read": 303, "applied": 303, "dropped": 0, "repeated": 0, "skipped": 0}
    assert served.report["rows"] == rows


def test_so_they_do_with_momentum_and_with_one_server(alone: Alone, tmp_path: Path) -> None:
    result = train_sparse(tmp_path / "run", fb.ParameterServer(), 2, 12, kind="sgd")
    assert_same_weights(alone(24, "sgd"), result)
    assert_same_tables(alone(24, "sgd"), result)


def test_gradients_are_clipped_as_one_over_all_workers_and_shards(
    alone: Alone, tmp_path: Path
) -> None:
    limits = {"clip_norm": 0.05, "clip_value": 0.02}
    strategy = fb.ParameterServer(servers=2)
    result = train_sparse(tmp_path / "run", strategy, 3, 8, kind="sgd", compute=limits)
    clipped = alone(24, "sgd", **limits)
    assert_same_weights(clipped, result)
    assert_same_tables(clipped, result)
    difference = alone(24, "sgd").model.layers[0].weight - clipped.model.layers[0].weight
    assert difference.abs().max() > 1e-3, "the limits changed nothing"


def test_one_asynchronous_worker_that_prefetches_equals_the_sequential_result(
    alone: Alone, tmp_path: Path
) -> None:
    strategy = fb.ParameterServer(servers=2, consistency="asynchronous")
    free = train_sparse(tmp_path / "free", strategy, 1, 16, prefetch=True)
    assert_same_weights(alone(16), free, exactly=True)
    assert_same_tables(alone(16), free, exactly=True)
    client = free.report["clients"]["0"]
    assert client["prefetch_hits"] > 0
    assert client["prefetch_misses"] == 0


@pytest.mark.parametrize("consistency", ["asynchronous", "synchronous"])
def test_hybrid_trains_dense_weights_among_workers_and_tables_on_servers(
    consistency: Any, alone: Alone, tmp_path: Path
) -> None:
    strategy = fb.Hybrid(servers=2, consistency=consistency)
    result = train_sparse(tmp_path / "hybrid", strategy, 2, 12, prefetch=True)
    if consistency == "synchronous":
        assert_same_weights(alone(24), result)
        assert_same_tables(alone(24), result)
    assert result.report["rows"]["applied"] == 303
    assert rows_of(result)["item"]


def test_lamb_and_sgd_at_rates_of_their_own_equal_one_process_and_resume(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "kind": "lamb",
        "schedule": fb.Schedule(kind="polynomial", warmup=3, start=5, steps=6, end=0.1),
    }
    hybrid = fb.Hybrid(servers=2, consistency="synchronous")
    one = train_sparse(tmp_path / "one", fb.AllReduce(), 1, 24, **options)
    several = train_sparse(tmp_path / "hybrid", hybrid, 2, 12, **options)
    assert_same_weights(one, several)
    assert_same_tables(one, several)
    train_sparse(tmp_path / "cut", hybrid, 2, 12, **options, max_steps=7)
    resumed = train_sparse(tmp_path / "cut", hybrid, 2, 12, **options)
    assert_same_weights(several, resumed)
    assert_same_tables(several, resumed)
    slower = fb.optim("sgd", lr=0.25)
    other = train_sparse(
        tmp_path / "slower", fb.AllReduce(), 1, 24, **options, table_optimizer=slower
    )
    first, second = (rows_of(run)["user"] for run in (one, other))
    assert any(abs(first[key] - second[key]).max() > 1e-3 for key in first)


def test_asynchronous_workers_train_every_row_once_and_learn(tmp_path: Path) -> None:
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
    rows = {"read": 2500, "applied": 2500, "dropped": 0, "repeated": 0, "skipped": 0}
    assert result.report["rows"] == rows
    assert result.report["step"] == 160
    assert result.metrics["accuracy"] > 0.8
    assert [entry["epoch"] for entry in result.history] == [1, 2, 3, 4, 5]


def test_the_model_of_a_result_reads_its_tables_where_they_are(served: Any) -> None:
    data = make_clicks()
    rows = rows_of(served)["user"]
    with torch.no_grad():
        found = served.model.users(torch.from_numpy(data["user"][:5]))
    for row, key in zip(found.numpy(), data["user"][:5].tolist(), strict=True):
        np.testing.assert_array_equal(row, rows[key])
    unknown = served.model.users(torch.tensor([123]))
    assert torch.equal(unknown, torch.zeros(1, 3, dtype=torch.float64))
    assert served.predict(data).num_rows == 101


def test_a_run_goes_on_with_another_number_of_servers(alone: Alone, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train_sparse(path, fb.ParameterServer(servers=2), 2, 12, epochs=2)
    resumed = train_sparse(path, fb.ParameterServer(servers=3), 2, 12, epochs=3)
    assert_same_weights(alone(24), resumed)
    assert_same_tables(alone(24), resumed)


def test_a_free_run_goes_on_where_it_was(alone: Alone, tmp_path: Path) -> None:
    path = tmp_path / "run"
    strategy = fb.ParameterServer(servers=2, consistency="bounded")
    train_sparse(path, strategy, 1, 16, epochs=2)
    resumed = train_sparse(path, strategy, 1, 16, epochs=3)
    assert_same_weights(alone(16), resumed)
    assert_same_tables(alone(16), resumed)
    assert resumed.report["rows"]["applied"] == 303


def test_incremental_checkpoints_hold_the_same_as_full_ones(alone: Alone, tmp_path: Path) -> None:
    checkpoints = {"every_steps": 2, "keep": 20, "incremental": True, "full_every": 4}
    strategy = fb.ParameterServer(servers=2)
    result = train_sparse(tmp_path / "run", strategy, 2, 12, checkpoints=checkpoints)
    assert_same_tables(alone(24), result)
    manifests = [Manifest.read(path) for path in sorted((tmp_path / "run/checkpoints").iterdir())]
    assert {len(manifest.tables["item"].layers) for manifest in manifests} == {1, 2}


@pytest.mark.parametrize(("name", "workers"), [("served", 2), ("alone", 1)])
def test_new_runs_begin_with_the_tables_of_another(
    name: str, workers: int, served: Any, tmp_path: Path
) -> None:
    then = train_sparse(
        tmp_path / "run",
        fb.ParameterServer() if name == "served" else fb.AllReduce(),
        workers,
        12,
        init_from=str(served.run_dir),
        max_steps=1,
        optimizer=fb.optim("sgd", lr=0.0),
        table_optimizer=OptimizerSpec(name="sgd", args={"lr": 0.0}),
    )
    assert_same_tables(served, then, exactly=True)


def test_encrypted_traffic_trains_the_same(alone: Alone, tmp_path: Path) -> None:
    strategy = fb.ParameterServer(encrypt=True)
    encrypted = train_sparse(tmp_path / "encrypted", strategy, 2, 12)
    assert_same_weights(alone(24), encrypted)
    assert_same_tables(alone(24), encrypted)


@pytest.mark.parametrize("compression", ["bf16", "fp16"])
def test_gradients_may_travel_as_halves(compression: Any, alone: Alone, tmp_path: Path) -> None:
    strategy = fb.ParameterServer(compression=compression)
    halves = train_sparse(tmp_path / "halves", strategy, 2, 12, kind="sgd")
    full = alone(24, "sgd").model.state_dict()
    for name, weight in halves.model.state_dict().items():
        torch.testing.assert_close(weight, full[name], rtol=0, atol=0.05)
    assert not torch.allclose(full["layers.0.weight"], halves.model.layers[0].weight, atol=1e-9)


class FrozenNet(SparseNet):
    """Users have rows that are given and stay."""

    def __init__(self, vectors: str) -> None:
        super().__init__()
        spec = TableSpec("user", 3, dtype="fp64", init=vectors, trainable=False)
        self.users = SparseEmbedding(spec)


@pytest.mark.parametrize("servers", [0, 2])
def test_rows_that_are_given_and_frozen_stay_as_they_are(tmp_path: Path, servers: int) -> None:
    users = make_clicks()["user"]
    vectors = {"id": users[:20], "vector": [[1.0, 2.0, float(row)] for row in range(20)]}
    pq.write_table(pa.table(vectors), tmp_path / "users.parquet")
    result = fb.fit(
        functools.partial(FrozenNet, str(tmp_path / "users.parquet")),
        make_clicks(),
        loss="bce",
        label="label",
        batch_size=32,
        epochs=2,
        strategy=fb.ParameterServer(servers=servers) if servers else fb.AllReduce(),
        observe=QUIET,
        run_dir=tmp_path / "run",
    )
    rows = rows_of(result)["user"]
    expected = {int(user): row for user, row in zip(users[:20], vectors["vector"], strict=True)}
    assert {user: row.tolist() for user, row in rows.items()} == expected
    parts = [server["tables"] for server in result.report["servers"].values()] if servers else []
    counted = sum(part["user"]["rows"] for part in parts or [result.report["tables"]])
    assert counted == len(expected)
    assert len(result.predict(make_clicks())) == 101


def test_a_trained_model_is_not_trained_anew_without_its_rows(served: Any, tmp_path: Path) -> None:
    data = {"loss": "bce", "label": "label", "batch_size": 32, "observe": QUIET}
    with pytest.raises(ModelError, match=r"table 'item' holds rows .* init_from="):
        fb.fit(served.model, make_clicks(), run_dir=tmp_path / "anew", **data)
    result = fb.fit(
        served.model, make_clicks(), init_from=served.run_dir, run_dir=tmp_path / "on", **data
    )
    assert result.report["status"] == "finished"


def test_the_log_ends_with_the_last_step(tmp_path: Path) -> None:
    result = train_sparse(tmp_path / "run", fb.ParameterServer(consistency="asynchronous"), 1, 8)
    *_, last = map(json.loads, (tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert (last["kind"], last["step"]) == ("job_end", result.report["step"])
