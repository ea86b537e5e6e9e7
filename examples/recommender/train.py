"""DeepFM on click logs in Criteo's form, with two asynchronous workers and a server.

Make some:  flambeau generate clicks --rows 1000000 --ids 20000 --out clicks
"""

import argparse

import flambeau as fb
from flambeau.config import FileData
from flambeau.models import DeepFM


def main(clicks: str, run_dir: str) -> None:
    table = {"initializer": {"kind": "uniform", "scale": 0.01}}
    result = fb.fit(
        DeepFM(fields=26, dense=13, embedding_dim=16, hidden=(256, 128), table=table),
        train=FileData(path=f"{clicks}/day_[0-5].tsv", format="criteo"),
        valid=FileData(path=f"{clicks}/day_6.tsv", format="criteo"),
        inputs={"ids": fb.columns("C1:C26"), "dense": fb.columns("I1:I13")},
        label="label",
        loss="bce",
        optimizer=fb.optim("adam", lr=1e-3),
        table_optimizer=fb.optim("adagrad", lr=0.02),
        metrics=["auc", "logloss"],
        batch_size=512,
        strategy=fb.ParameterServer(consistency="asynchronous", servers=1),
        cluster=fb.Local(workers=2),
        checkpoints=fb.Checkpoints(keep=2, best="auc"),
        run_dir=run_dir,
    )
    print(result.metrics)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", default="clicks", help="the folder with the logs")
    parser.add_argument("--run-dir", default="runs/recommender")
    main(**vars(parser.parse_args()))
