"""ResNet-18 on your own images, one folder per class. The same as job.yaml."""

import argparse
from pathlib import Path

import flambeau as fb
from flambeau.config import EarlyStopping, FileData, Images, Loading
from flambeau.models import resnet18

IMAGES = Images(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    crop_padding=8,
    flip=True,
)


def main() -> None:
    options = parse_options()
    result = fb.fit(
        resnet18(in_channels=3, classes=count_classes(options.data), stem="imagenet"),
        train=images_in(options.data / "train"),
        valid=images_in(options.data / "valid"),
        label="label",
        keys=["path"],
        loss="cross_entropy",
        optimizer=fb.optim("adamw", lr=1e-3, weight_decay=0.05),
        schedule=fb.Schedule(kind="cosine", warmup=50),
        metrics=["accuracy"],
        batch_size=32,
        epochs=options.epochs,
        cluster=fb.Local(options.workers),
        loading=Loading(workers=1),
        images=IMAGES,
        checkpoints=fb.Checkpoints(keep=2, best="accuracy"),
        early_stopping=EarlyStopping(metric="accuracy", patience=5),
        run_dir=options.run_dir,
    )
    print(f"accuracy {result.metrics['accuracy']:.4f}, run directory {result.run_dir}")


def count_classes(data: Path) -> int:
    return sum(folder.is_dir() for folder in (data / "train").iterdir())


def images_in(folder: Path) -> FileData:
    return FileData(path=str(folder), format="images", options={"size": 128})


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data/images"),
        help="a folder with train/CLASS/*.jpg and valid/CLASS/*.jpg",
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--run-dir", default="runs/image_folder")
    return parser.parse_args()


if __name__ == "__main__":
    main()
