"""LeNet on the MNIST files (idx, plain or .gz). The same as job.yaml."""

import argparse

import flambeau as fb
from flambeau.config import FileData, Images
from flambeau.models import LeNet


def main() -> None:
    options = parse_options()
    result = fb.fit(
        LeNet(in_channels=1, classes=10),
        train=FileData(path=options.data, format="idx", options={"split": "train"}),
        valid=FileData(path=options.data, format="idx", options={"split": "test"}),
        label="label",
        loss="cross_entropy",
        optimizer=fb.optim("sgd", lr=0.05, momentum=0.9),
        schedule=fb.Schedule(kind="cosine", warmup=100),
        metrics=["accuracy"],
        batch_size=64,
        epochs=options.epochs,
        cluster=fb.Local(options.workers),
        images=Images(mean=(0.1307,), std=(0.3081,)),
        checkpoints=fb.Checkpoints(keep=2, best="accuracy"),
        run_dir=options.run_dir,
    )
    print(f"accuracy {result.metrics['accuracy']:.4f}, run directory {result.run_dir}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/mnist", help="the folder of the four idx files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--run-dir", default="runs/mnist")
    return parser.parse_args()


if __name__ == "__main__":
    main()
