"""Normalisation, random crops and flips of a batch of images."""

from typing import final

import numpy as np
import torch
import torch.nn.functional as F

from flambeau.config import Images
from flambeau.config.plural import number_of
from flambeau.data.batch import Batch
from flambeau.errors import ConfigError, DataError


@final
class ImageTransform:
    """Transform that applies the settings `Images` to the image column of a batch.

    Random numbers depend only on the seed and the batch's epoch and index, so reading ahead or
    resuming does not change them.
    """

    def __init__(self, settings: Images) -> None:
        self._settings = settings

    def __call__(self, batch: Batch, *, train: bool, seed: int) -> Batch:
        """Return the batch with its images [batch, channels, h, w] transformed."""
        name, images = self._find(batch)
        if train:
            images = self._augment(images, _generator(seed, batch.epoch, batch.index))
        columns = {**batch.columns, name: self._normalise(name, _as_float(images))}
        return Batch(columns, batch.size, batch.epoch, batch.index)

    def _find(self, batch: Batch) -> tuple[str, torch.Tensor]:
        asked = self._settings.column
        found = {
            name: column
            for name, column in batch.columns.items()
            if isinstance(column, torch.Tensor) and column.ndim == 4 and asked in (None, name)
        }
        if len(found) != 1:
            raise DataError(_not_found(asked, list(found), batch))
        return next(iter(found.items()))

    def _augment(self, images: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
        """Crop and flip; both are always drawn, so that one setting does not change the other."""
        padding, count = self._settings.crop_padding, len(images)
        offsets = torch.from_numpy(random.integers(0, 2 * padding + 1, (2, count, 1)))
        flips = torch.from_numpy(random.integers(0, 2, (count, 1)).astype(bool))
        if not padding and not self._settings.flip:
            return images
        padded = F.pad(images, (padding, padding, padding, padding))
        height, width = torch.arange(images.shape[2]), torch.arange(images.shape[3])
        across = torch.where(flips & self._settings.flip, width.flip(0), width)
        return _pick(padded, height + offsets[0], across + offsets[1])

    def _normalise(self, name: str, images: torch.Tensor) -> torch.Tensor:
        mean, std = self._settings.mean, self._settings.std
        if mean is None or std is None:
            return images
        channels = images.shape[1]
        if len(mean) != channels:
            raise ConfigError(
                f"images.mean and images.std have {number_of(len(mean), 'value')}, but column "
                f"{name!r} has {number_of(channels, 'channel')}"
            )
        return (images - _per_channel(mean, images)) / _per_channel(std, images)


def _pick(images: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the pixels of each image at its `rows` [batch, h] and `columns` [batch, w]."""
    batch, channels, _, width = images.shape
    places = (rows[:, :, None] * width + columns[:, None, :]).reshape(batch, 1, -1)
    picked = images.flatten(2).gather(2, places.expand(-1, channels, -1))
    return picked.reshape(batch, channels, rows.shape[1], columns.shape[1])


def _as_float(images: torch.Tensor) -> torch.Tensor:
    if images.is_floating_point():
        return images
    return images.to(torch.float32) / 255


def _per_channel(values: tuple[float, ...], images: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=images.dtype, device=images.device)[:, None, None]


def _generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    key = np.random.SeedSequence((seed % 2**64, epoch, index))
    return np.random.Generator(np.random.Philox(key))


def _not_found(asked: str | None, found: list[str], batch: Batch) -> str:
    if asked is not None:
        return (
            f"images.column={asked!r} is not a column of images [batch, channels, height, width]; "
            f"the columns are {', '.join(batch)}"
        )
    if found:
        return f"several columns hold images ({', '.join(found)}): give images.column"
    return (
        f"no column holds images [batch, channels, height, width] for images=; "
        f"the columns are {', '.join(batch)}"
    )
