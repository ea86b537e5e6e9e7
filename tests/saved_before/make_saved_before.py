"""Write the files that tests open as those of an earlier version: `python make_saved_before.py`.

They were made once, and stay as they are: what users have saved must still be readable when the
code has changed. Run again, with another folder name, when a format gets a new version on purpose.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import torch

import flambeau as fb
from flambeau.models.ctr import DeepFM

#: Runs whose scores are kept, and what is scored.
SCORED = {"shorthands": "visits", "logs": "logs.txt"}


def write_clicks(folder: Path) -> None:
    folder.mkdir()
    for number in range(4):
        chance = random.Random(number)
        lines = ["clicked,user,item,age"]
        for row in range(60):
            user, item = chance.randrange(40), 1000 + chance.randrange(60)
            lines.append(f"{int((user + item) % 3 == 0)},{user},{item},{row % 7 / 7:.3f}")
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")


def with_tables(run: str, **more: object) -> fb.Result:
    return fb.fit(
        DeepFM(fields=2, dense=1, embedding_dim=4, hidden=[8]),
        train="clicks",
        valid="clicks",
        inputs={"ids": ["user", "item"], "dense": ["age"]},
        label="clicked",
        loss="bce",
        metrics=["auc"],
        batch_size=24,
        strategy=fb.ParameterServer(servers=2, consistency="asynchronous"),
        cluster=fb.Local(2),
        run_dir=run,
        **{"epochs": 1, **more},
    )


def without_tables(run: str, **more: object) -> fb.Result:
    return fb.fit(
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)),
        train="clicks",
        inputs=["user", "item", "age"],
        label="clicked",
        loss="bce",
        batch_size=24,
        cluster=fb.Local(2),
        run_dir=run,
        **{"epochs": 1, **more},
    )


def write_visits(folder: Path) -> None:
    """Write rows with texts, and some values missing."""
    folder.mkdir()
    chance = random.Random(7)
    lines = ["clicked,user,item,city,price,visits"]
    for row in range(96):
        user, item = f"u{chance.randrange(20)}", chance.choice(["tea", "coffee", "Süßes", ""])
        city = chance.choice(["", "3", "17", "400000000000"])
        price = chance.choice(["", f"{chance.random():.3f}"])
        lines.append(f"{row % 2},{user},{item},{city},{price},{chance.choice(['', '0', '2'])}")
    (folder / "0.csv").write_text("\n".join(lines) + "\n")


def with_shorthands(run: str, **more: object) -> fb.Result:
    return fb.fit(
        DeepFM(fields=4, dense=2, embedding_dim=4, hidden=[8]),
        train="visits",
        inputs={"ids": ["user", "item", "city", "user_x_city"], "dense": ["price", "visits"]},
        hash={"user": "visitor"},
        crosses={"user_x_city": ["user", "city"]},
        fill={"price": 0.25, "visits": -1.0},
        label="clicked",
        keys=["user"],
        loss="bce",
        batch_size=24,
        strategy=fb.ParameterServer(servers=1),
        cluster=fb.Local(1),
        run_dir=run,
        **{"epochs": 1, **more},
    )


def write_logs(file: Path) -> None:
    """Write logs like Criteo's, with values missing."""
    chance = random.Random(11)
    lines = []
    for row in range(96):
        numbers = [chance.choice(["", "-2", "0", "7", "5000", "16777217"]) for _ in range(13)]
        texts = [chance.choice(["", "68fd1e64", "05db9164", "é"]) for _ in range(26)]
        lines.append("\t".join([str(row % 2), *numbers, *texts]))
    file.write_text("\n".join(lines) + "\n")


def with_logs(run: str, **more: object) -> fb.Result:
    return fb.fit(
        DeepFM(fields=26, dense=13, embedding_dim=2, hidden=[4]),
        train=fb.files("logs.txt", format="criteo"),
        inputs={"ids": "C1:C26", "dense": "I1:I13"},
        label="label",
        loss="bce",
        batch_size=24,
        strategy=fb.ParameterServer(servers=1),
        cluster=fb.Local(1),
        run_dir=run,
        **{"epochs": 1, **more},
    )


def scores(place: str, data: str) -> list[float]:
    """Return the predictions of a run for files."""
    subprocess.run(
        [sys.executable, "-m", "flambeau", "predict", place, data, "--out", f"{place}-scores"],
        check=True,
    )
    found = pq.read_table(f"{place}-scores")["probability"].to_pylist()
    shutil.rmtree(f"{place}-scores")
    return found


def half_finished_predictions(run: str, folder: Path) -> None:
    command = ["predict", run, "clicks", "--out", str(folder), "--part-rows", "60"]
    subprocess.run([sys.executable, "-m", "flambeau", *command], check=True)
    manifest = json.loads((folder / "_manifest.json").read_text())
    (folder / "_manifest.json").write_text(json.dumps({**manifest, "complete": False}, indent=1))
    for part in sorted(folder.glob("part-*"))[1:3]:
        part.unlink()


def save_spark_pipeline(folder: str) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    from flambeau.spark import TorchEstimator

    spark = SparkSession.builder.master("local[1]").getOrCreate()
    rows = spark.read.csv("clicks", header=True, inferSchema=True)
    pipeline = Pipeline(
        stages=[
            VectorAssembler(inputCols=["user", "item", "age"], outputCol="features"),
            TorchEstimator(
                model=torch.nn.Linear(3, 1),
                loss="bce",
                labelCol="clicked",
                numWorkers=1,
            ),
        ]
    )
    pipeline.fit(rows).write().overwrite().save(folder)
    spark.stop()


def save_shorthands() -> None:
    """Write what was saved when `fit` itself hashed, crossed and filled columns."""
    write_visits(Path("visits"))
    with_shorthands("runs/shorthands").export("shorthands-export")
    write_logs(Path("logs.txt"))
    with_logs("runs/logs").export("logs-export")
    found = {name: scores(f"runs/{name}", data) for name, data in SCORED.items()}
    Path("scores.json").write_text(json.dumps(found))


def main() -> None:
    write_clicks(Path("clicks"))
    tables = with_tables("runs/tables")
    without_tables("runs/dense")
    tables.export("export")
    half_finished_predictions("runs/tables", Path("predictions"))
    save_shorthands()
    save_spark_pipeline("pipeline")
    for run in Path("runs").iterdir():
        shutil.rmtree(run / "tensorboard", ignore_errors=True)


if __name__ == "__main__":
    main()
