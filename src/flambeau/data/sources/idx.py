"""The idx files of MNIST and related data sets, uncompressed or gzipped."""

import gzip
import mmap
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from flambeau.data.batch import Batch, Column
from flambeau.data.source import IndexedSource
from flambeau.data.sources.mapping import map_descriptor, map_file
from flambeau.data.sources.paths import require_content
from flambeau.errors import DataError

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_PREFIXES = {"train": ("train",), "test": ("t10k", "test")}
_GZIP = b"\x1f\x8b"


@final
class IdxSource(IndexedSource):
    """Columns `image` [batch, 1, height, width] (of the file's type) and `label` (int64).

    `path` is the images file, or a directory with one pair of files (`split` chooses between
    `train-*` and `t10k-*`). The labels file is `labels`, or named like the images file.
    """

    columns = ("image", "label")
    positional = ("image",)
    labels = ("label",)

    def __init__(self, path: str, *, labels: str | None = None, split: str | None = None) -> None:
        self._arguments = (path, labels, split)
        image_path = _images_in(Path(path), split) if Path(path).is_dir() else path
        label_path = labels or _labels_beside(image_path)
        self._images, self._labels = read_idx(image_path), read_idx(label_path)
        if len(self._images) != len(self._labels):
            raise DataError(
                f"{image_path} has {len(self._images)} images "
                f"but {label_path} has {len(self._labels)} labels"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments

    def __len__(self) -> int:
        return len(self._images)

    def take(self, rows: np.ndarray, columns: Sequence[str] | None = None) -> Batch:
        parts = {"image": self._take_images, "label": self._take_labels}
        return Batch({name: parts[name](rows) for name in columns or self.columns}, len(rows))

    def _take_images(self, rows: np.ndarray) -> Column:
        taken = self._images[rows]
        images = torch.from_numpy(taken.astype(taken.dtype.newbyteorder("="), copy=False))
        return images.unsqueeze(1) if images.ndim == 3 else images

    def _take_labels(self, rows: np.ndarray) -> Column:
        return torch.from_numpy(self._labels[rows].astype(np.int64))


def read_idx(path: str) -> np.ndarray:
    """Return the array in an idx file of any rank and type, mapped, in the file's byte order."""
    memory = _open(path)
    dtype, shape, start = _header(memory, path)
    expected = start + int(np.prod(shape)) * dtype.itemsize
    if len(memory) != expected:
        fault = "is truncated" if len(memory) < expected else "has bytes after its end"
        raise DataError(f"{path} {fault}: {len(memory)} bytes, its header says {expected}")
    return np.frombuffer(memory, dtype, offset=start).reshape(shape)


def _header(memory: mmap.mmap, path: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    magic = memory[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] == 0:
        raise DataError(f"{path} is not an idx file: it starts with {magic.hex(' ')}")
    start = 4 + 4 * magic[3]
    if len(memory) < start:
        raise DataError(f"{path} is truncated: it ends inside its header")
    shape = tuple(np.frombuffer(memory, ">u4", magic[3], offset=4).tolist())
    if 0 in shape:
        raise DataError(f"{path} holds no data: its header says {shape}")
    return np.dtype(_TYPES[magic[2]]), shape, start


def _open(path: str) -> mmap.mmap:
    require_content(path)
    memory = map_file(path)
    return _decompressed(path) if memory[:2] == _GZIP else memory


def _decompressed(path: str) -> mmap.mmap:
    with gzip.open(path) as packed, tempfile.TemporaryFile() as plain:
        try:
            shutil.copyfileobj(packed, plain)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file: {error}") from error
        plain.flush()
        if plain.tell() == 0:
            raise DataError(f"{path} is empty once decompressed")
        return map_descriptor(plain.fileno())


def _images_in(directory: Path, split: str | None) -> str:
    if split is not None and split not in _PREFIXES:
        raise DataError(f"split={split!r}: use 'train' or 'test'")
    prefixes = _PREFIXES[split] if split else ("",)
    found = sorted(path for path in directory.glob("*images*") if path.name.startswith(prefixes))
    # Downloads often leave the compressed file beside the decompressed one.
    pairs = {path.name.removesuffix(".gz"): path for path in reversed(found)}
    if len(pairs) == 1:
        return str(next(iter(pairs.values())))
    if not pairs:
        raise DataError(f"directory {str(directory)!r} holds no idx images file for {split=}")
    names = ", ".join(sorted(pairs))
    raise DataError(f"{str(directory)!r} holds several images files ({names}): give split=")


def _labels_beside(images: str) -> str:
    path = Path(images)
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    if name == path.name:
        raise DataError(f"give labels=: the labels file of {images} does not follow from its name")
    beside = path.with_name(name)
    return str(beside if beside.exists() else _other_packing(beside))


def _other_packing(path: Path) -> Path:
    plain = path.name.removesuffix(".gz")
    other = path.with_name(plain if plain != path.name else f"{plain}.gz")
    return other if other.exists() else path


def _reopen(path: str, labels: str | None, split: str | None) -> IdxSource:
    return IdxSource(path, labels=labels, split=split)
