"""ResNet-20 on the binary version of CIFAR-10, with crops and flips. The same as job.yaml."""

import argparse

import flambeau as fb
from flambeau.config import FileData, Images
from flambeau.models import resnet20

IMAGES = Images(
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    crop_padding=4,
    flip=True,
)


def main() -> None:
    options = parse_options()
    result = fb.fit(
        resnet20(in_channels=3, classes=10),
        train=FileData(path=options.data, format="cifar10", options={"split": "train"}),
        valid=FileData(path=options.data, format="cifar10", options={"split": "test"}),
        label="label",
        loss="cross_entropy",
        optimizer=fb.optim("sgd", lr=0.1, momentum=0.9, weight_decay=1e-4),
        schedule=fb.Schedule(kind="cosine", warmup=400),
        metrics=["accuracy", "top5"],
        batch_size=64,
        epochs=options.epochs,
        cluster=fb.Local(options.workers),
        images=IMAGES,
        checkpoints=fb.Checkpoints(keep=2, best="accuracy"),
        evaluator=True,
        run_dir=options.run_dir,
    )
    print(f"accuracy {result.metrics['accuracy']:.4f}, run directory {result.run_dir}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", default="data/cifar-10-batches-bin", help="the folder of the .bin files"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--run-dir", default="runs/cifar")
    return parser.parse_args()


if __name__ == "__main__":
    main()
