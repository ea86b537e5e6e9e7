"""ResNet-20 on the digits that come with scikit-learn. The same as job.yaml."""

import argparse

import digits

import flambeau as fb
from flambeau.config import Images
from flambeau.models import resnet20


def main() -> None:
    options = parse_options()
    result = fb.fit(
        resnet20(in_channels=1, classes=10),
        train=digits.train(),
        valid=digits.valid(),
        loss="cross_entropy",
        optimizer=fb.optim("sgd", lr=0.1, momentum=0.9, weight_decay=5e-4),
        schedule=fb.Schedule(kind="cosine", warmup=20),
        metrics=["accuracy"],
        batch_size=64,
        epochs=options.epochs,
        cluster=fb.Local(options.workers),
        images=Images(mean=(0.305,), std=(0.376,), crop_padding=1),
        checkpoints=fb.Checkpoints(keep=2, best="accuracy"),
        evaluator=True,
        run_dir=options.run_dir,
    )
    print(f"accuracy {result.metrics['accuracy']:.4f}, run directory {result.run_dir}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--run-dir", default="runs/digits")
    return parser.parse_args()


if __name__ == "__main__":
    main()
