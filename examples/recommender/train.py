"""DeepFM on click logs in Criteo's form. The same as job.yaml.

Make some:  flambeau generate clicks --rows 1000000 --ids 20000 --out clicks
"""

import argparse

import flambeau as fb
from flambeau.config import FileData
from flambeau.models import DeepFM


def main() -> None:
    options = parse_options()
    table = {"initializer": {"kind": "uniform", "scale": 0.01}}
    result = fb.fit(
        DeepFM(fields=26, dense=13, embedding_dim=16, hidden=(256, 128), table=table),
        train=FileData(path=f"{options.clicks}/day_[0-5].tsv", format="criteo"),
        valid=FileData(path=f"{options.clicks}/day_6.tsv", format="criteo"),
        inputs={"ids": fb.columns("C1:C26"), "dense": fb.columns("I1:I13")},
        label="label",
        loss="bce",
        optimizer=fb.optim("adam", lr=1e-3),
        table_optimizer=fb.optim("adagrad", lr=0.02),
        metrics=["auc", "logloss"],
        batch_size=512,
        epochs=options.epochs,
        strategy=fb.ParameterServer(consistency="asynchronous", servers=options.servers),
        cluster=fb.Local(options.workers),
        checkpoints=fb.Checkpoints(keep=2, best="auc"),
        run_dir=options.run_dir,
    )
    print(f"auc {result.metrics['auc']:.4f}, run directory {result.run_dir}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", default="clicks", help="the folder with the logs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--run-dir", default="runs/recommender")
    return parser.parse_args()


if __name__ == "__main__":
    main()
