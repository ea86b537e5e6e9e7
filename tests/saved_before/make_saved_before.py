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

import torch

import flambeau as fb
from flambeau.models.ctr import DeepFM


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


def main() -> None:
    write_clicks(Path("clicks"))
    tables = with_tables("runs/tables")
    without_tables("runs/dense")
    tables.export("export")
    half_finished_predictions("runs/tables", Path("predictions"))
    save_spark_pipeline("pipeline")
    for run in Path("runs").iterdir():
        shutil.rmtree(run / "tensorboard", ignore_errors=True)


if __name__ == "__main__":
    main()
