"""Training on the tasks of a Spark session."""

import json
import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import flambeau as fb
import flambeau.compat.horovod as hvd
from flambeau.clusters.spark.cluster import make_task, raise_mistake
from flambeau.errors import (
    ConfigError,
    DataError,
    JobFailedError,
    MissingDependencyError,
    ModelError,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"


class Net(nn.Module):
    """Two classes of points in the plane."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Bags(nn.Module):
    """A weight for each position of a sparse vector."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = fb.embeddings.SparseEmbedding(
            fb.embeddings.TableSpec("weights", 1), pooling="sum"
        )

    def forward(self, features: fb.Jagged) -> Tensor:
        return self.weights(features).squeeze(1)


def quadrants(spark: "SparkSession", rows: int = 400) -> "DataFrame":
    x = np.random.default_rng(0).normal(size=(rows, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": (x[:, 0] * x[:, 1] > 0).astype(int)})
    return spark.createDataFrame(frame)


COMMON = {
    "inputs": {"x": ["a", "b"]},
    "label": "y",
    "loss": "cross_entropy",
    "optimizer": fb.optim("adam", lr=0.03),
    "batch_size": 50,
    "observe": {"progress": "none"},
}


def events(run: Path, kind: str) -> list[dict]:
    lines = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_a_function_on_every_task(spark: "SparkSession") -> None:
    def where() -> list[str]:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        return [os.environ[name] for name in names]

    cluster = fb.Spark(2, session=spark)
    # Each task has an agent of its own; both are on one machine.
    assert fb.run(where, cluster=cluster) == [["0", "2", "0", "2", "0"], ["1", "2", "1", "2", "0"]]


def test_functions_of_fb_run_are_ranks_of_horovods(spark: "SparkSession") -> None:
    def sum_of_ranks() -> float:
        hvd.init()
        total = hvd.allreduce(torch.tensor(hvd.rank() + 1.0), op=hvd.Sum).item()
        hvd.shutdown()
        return total

    assert fb.run(sum_of_ranks, cluster=fb.Spark(2, session=spark)) == [3.0, 3.0]


def test_a_data_frame_is_spooled_once_and_trained_on(spark: "SparkSession", tmp_path: Path) -> None:
    train, valid = quadrants(spark).randomSplit([0.75, 0.25], seed=1)
    spools = tmp_path / "spools"
    spools.mkdir()
    result = fb.fit(
        Net,
        train=train,
        valid=valid,
        metrics=["accuracy"],
        epochs=30,
        cluster=fb.Spark(2, session=spark, spool_dir=str(spools)),
        run_dir=tmp_path / "run",
        **COMMON,
    )
    rows = {"train": train.count(), "valid": valid.count()}
    assert result.metrics["accuracy"] > 0.9
    assert result.report["rows"]["read"] == 30 * rows["train"]
    assert result.report["rows"]["applied"] == 30 * rows["train"]
    (spooled,) = events(tmp_path / "run", "spooled")
    assert spooled["rows"] == rows
    assert spooled["agents"] == 2
    assert spooled["bytes"] > 400 * 3 * 8
    assert not list(spools.iterdir())
    assert not (tmp_path / "run" / ".token").exists()


def test_asynchronous_workers_train_on_the_rows_that_they_have(
    spark: "SparkSession", tmp_path: Path
) -> None:
    result = fb.fit(
        Net,
        train=quadrants(spark),
        valid=quadrants(spark, 100),
        metrics=["accuracy"],
        epochs=20,
        strategy=fb.ParameterServer(consistency="asynchronous"),
        cluster=fb.Spark(2, session=spark),
        run_dir=tmp_path,
        **COMMON,
    )
    assert result.metrics["accuracy"] > 0.9
    assert result.report["rows"]["applied"] == 20 * 400


def test_sparse_vectors_stay_sparse(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    size = 1 << 30  # nothing of this length is ever made dense
    rows = [(Vectors.sparse(size, {row % 5: 1.0}), float(row % 5 == 3)) for row in range(200)]
    result = fb.fit(
        Bags,
        train=spark.createDataFrame(rows, ["features", "y"]),
        label="y",
        loss="bce",
        epochs=20,
        batch_size=20,
        optimizer=fb.optim("adagrad", lr=0.5),
        strategy=fb.ParameterServer(consistency="asynchronous"),
        cluster=fb.Spark(2, session=spark),
        observe={"progress": "none"},
        run_dir=tmp_path,
    )
    offsets = torch.arange(6)
    scores = result.model(fb.Jagged(torch.arange(5), offsets, torch.ones(5)))
    assert int(scores.argmax()) == 3


@pytest.mark.parametrize("way", ["messages", "depot"])
def test_executors_that_do_not_see_the_run_directory(
    spark: "SparkSession", tmp_path: Path, way: str
) -> None:
    depot = tmp_path / "depot"
    depot.mkdir()
    through = {"carry_mb": 0, "depot": depot.as_uri()} if way == "depot" else {}
    cluster = fb.Spark(2, session=spark, shared_files=False, **through)
    common = {**COMMON, "train": quadrants(spark), "cluster": cluster}
    first = fb.fit(Net, epochs=1, run_dir=tmp_path / "one", **common)
    longer = fb.fit(Net, epochs=3, run_dir=tmp_path / "one", **common)
    assert [first.report["step"], longer.report["step"]] == [4, 12]
    other = fb.fit(
        Net, epochs=1, init_from=str(tmp_path / "one"), run_dir=tmp_path / "two", **common
    )
    before, after = first.model.state_dict(), other.model.state_dict()
    assert not torch.equal(before["layers.0.weight"], after["layers.0.weight"])
    assert sorted(path.name for path in (tmp_path / "two").iterdir() if path.name[0] == ".") == []
    assert not list(depot.iterdir())


def test_a_checkpoint_that_is_too_large_to_travel(spark: "SparkSession", tmp_path: Path) -> None:
    cluster = fb.Spark(2, session=spark, shared_files=False, carry_mb=0)
    with pytest.raises(JobFailedError, match=r"depot=.hdfs.*any fsspec URL"):
        fb.fit(Net, train=quadrants(spark), cluster=cluster, run_dir=tmp_path, **COMMON)


def test_files_are_read_by_the_workers_themselves(spark: "SparkSession", tmp_path: Path) -> None:
    quadrants(spark).toPandas().to_parquet(tmp_path / "rows.parquet")
    result = fb.fit(
        Net,
        train=str(tmp_path / "rows.parquet"),
        cluster=fb.Spark(2, session=spark),
        run_dir=tmp_path / "run",
        **COMMON,
    )
    assert result.report["rows"]["applied"] == 400


def test_a_frame_without_rows(spark: "SparkSession", tmp_path: Path) -> None:
    cluster = fb.Spark(2, session=spark)
    with pytest.raises(DataError, match="the data frame has no rows"):
        fb.fit(Net, train=quadrants(spark).limit(0), cluster=cluster, run_dir=tmp_path, **COMMON)


def test_rows_to_validate_on_need_their_label(spark: "SparkSession", tmp_path: Path) -> None:
    train = quadrants(spark)
    label = COMMON["label"]
    with pytest.raises(DataError, match=f"valid= has no column '{label}', which is a label"):
        fb.fit(
            Net,
            train=train,
            valid=train.drop(label),
            cluster=fb.Spark(2, session=spark),
            run_dir=tmp_path,
            **COMMON,
        )


def test_a_task_without_rows(spark: "SparkSession", tmp_path: Path) -> None:
    result = fb.fit(
        Net,
        train=quadrants(spark, 400).where("a > 0").coalesce(1).limit(3),
        epochs=2,
        cluster=fb.Spark(2, session=spark),
        run_dir=tmp_path,
        **COMMON,
    )
    assert result.report["rows"]["applied"] == 6


def test_too_few_slots_are_told_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runs 2 tasks at a time"):
        fb.fit(
            Net,
            train=quadrants(spark),
            cluster=fb.Spark(3, session=spark),
            run_dir=tmp_path,
            **COMMON,
        )


def test_a_mistake_of_the_model_is_what_it_is(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="forward"):
        fb.fit(
            Net,
            train=quadrants(spark),
            cluster=fb.Spark(2, session=spark),
            run_dir=tmp_path,
            **{**COMMON, "inputs": {"z": ["a", "b"]}},
        )


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        ({"torch": "0.1"}, ConfigError, r"an executor has torch .*, this driver 0.1; install"),
        ({"no-such-thing": "1"}, MissingDependencyError, "no-such-thing is not installed on an"),
    ],
)
def test_an_executor_with_other_packages(
    spark: "SparkSession", wanted: dict[str, str], error: type, text: str
) -> None:
    stage = spark.range(2).repartition(2).mapInArrow(make_task(b"", wanted, "serve"), "id long")
    with pytest.raises(Exception) as caught:
        stage.collect()
    with pytest.raises(error, match=text):
        raise_mistake(caught.value)


def test_the_example(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "train.py"), run_name="example")
    assert example["main"](workers=2).metrics["auc"] > 0.95


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("arrays", fb.AllReduce()), ("pandas", fb.ParameterServer())],
    ids=["arrays", "pandas"],
)
def test_data_of_the_driver_reaches_executors(
    spark: "SparkSession", tmp_path: Path, kind: str, strategy: Any
) -> None:
    x = np.random.default_rng(0).normal(size=(202, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": (x[:, 0] * x[:, 1] > 0).astype(int)})
    columns: Any = {"inputs": COMMON["inputs"], "label": "y"}
    common: Any = {"loss": "cross_entropy", "epochs": 2, "observe": COMMON["observe"]}
    common["optimizer"] = fb.optim("sgd", lr=0.1)
    given: Any = {"train": frame, "valid": frame, **columns}
    if kind == "arrays":
        given = {"train": (x.astype(np.float32), frame["y"].to_numpy())}
    torch.manual_seed(1)
    net = Net()
    many = fb.fit(
        net,
        **given,
        **common,
        batch_size=25,
        strategy=strategy,
        cluster=fb.Spark(2, session=spark, shared_files=False),
        run_dir=tmp_path / "many",
    )
    one = fb.fit(net, **given, **common, batch_size=50, run_dir=tmp_path / "one")
    assert many.report["rows"]["applied"] == 2 * 202
    for ours, expected in zip(many.model.parameters(), one.model.parameters(), strict=True):
        assert torch.allclose(ours, expected, rtol=1e-4, atol=1e-6)
    assert not list((tmp_path / "many").glob(".flambeau*"))
