"""Image files in one folder per class."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from PIL import Image

from flambeau.data.batch import Batch, Column
from flambeau.data.source import IndexedSource
from flambeau.errors import DataError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@final
class ImageFolderSource(IndexedSource):
    """Columns `image` (uint8 [batch, channels, h, w]), `label` (int64) and `path` (strings).

    Folder names in sorted order are the labels 0, 1, ...; `classes` gives another order, or the
    classes of the training data if some are missing. With `size` (one number, or height and width),
    images are resized; without it, all images must be as large as the first.
    """

    columns = ("image", "label", "path")
    positional = ("image",)
    labels = ("label",)

    def __init__(
        self,
        path: str,
        *,
        size: int | Sequence[int] | None = None,
        channels: int = 3,
        classes: Sequence[str] | None = None,
    ) -> None:
        if channels not in (1, 3):
            raise DataError(f"channels={channels}: use 3 (colour) or 1 (grey)")
        self._root = path
        self._mode = "RGB" if channels == 3 else "L"
        self.classes = _classes(path, classes)
        files = [_images_below(path, name) for name in self.classes]
        # An array, not a list of strings: forked loaders would copy every page of a list.
        self._files = np.array([os.fsencode(file) for group in files for file in group])
        self._numbers = np.repeat(np.arange(len(files)), [len(group) for group in files])
        self._resize = size is not None
        self._size = _height_width(size) if size is not None else self._size_of_first()

    def __len__(self) -> int:
        return len(self._files)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        parts = {"image": self._images, "label": self._labels, "path": self._paths}
        return Batch({name: parts[name](rows) for name in columns or self.columns}, len(rows))

    def _images(self, rows: np.ndarray) -> Column:
        pixels = np.stack([self._decode(path) for path in self._paths(rows)])
        images = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(images))

    def _labels(self, rows: np.ndarray) -> Column:
        return torch.from_numpy(self._numbers[rows].astype(np.int64))

    def _paths(self, rows: np.ndarray) -> np.ndarray:
        names = [os.path.join(self._root, os.fsdecode(name)) for name in self._files[rows]]
        return np.array(names, dtype=object)

    def _decode(self, path: str) -> np.ndarray:
        height, width = self._size
        try:
            with Image.open(path) as image:
                if image.size != (width, height) and not self._resize:
                    raise DataError(
                        f"{path} is {image.size[1]} x {image.size[0]} pixels, the first image is "
                        f"{height} x {width}: give size= to make all images equal"
                    )
                pixels = image.convert(self._mode)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be decoded as an image: {error}") from error
        if pixels.size != (width, height):
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(pixels)

    def _size_of_first(self) -> tuple[int, int]:
        path = self._paths(np.array([0]))[0]
        try:
            with Image.open(path) as image:
                return image.size[1], image.size[0]
        except OSError as error:
            raise DataError(f"{path} cannot be decoded as an image: {error}") from error


def _classes(path: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    if not os.path.isdir(path):
        raise DataError(f"{path!r} is not a directory with one folder of images per class")
    found = sorted(entry.name for entry in os.scandir(path) if _is_class(entry))
    if not found:
        raise DataError(f"directory {path!r} has no class folders")
    unknown = [name for name in found if asked is not None and name not in asked]
    if unknown:
        raise DataError(
            f"folder {unknown[0]!r} in {path!r} is not one of classes={list(asked or ())}"
        )
    return tuple(found if asked is None else asked)


def _is_class(entry: "os.DirEntry[str]") -> bool:
    return entry.is_dir() and not entry.name.startswith(".")


def _images_below(root: str, name: str) -> list[str]:
    """Return the images of a class, as paths relative to `root`."""
    folder = Path(root) / name
    files = [file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES]
    if not files and folder.exists():
        raise DataError(f"class folder {str(folder)!r} holds no images ({', '.join(SUFFIXES)})")
    return sorted(str(file.relative_to(root)) for file in files)


def _height_width(size: int | Sequence[int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or min(pair) < 1:
        raise DataError(f"size={size!r}: give one positive number, or height and width")
    return pair[0], pair[1]
