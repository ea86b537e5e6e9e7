"""LeNet-5 (LeCun et al. 1998)."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.models.vision.kaiming import initialize

SIDE = 32


@final
class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling: two convolutions and three linear layers.

    It is designed for 32 x 32 pixels. Smaller images get a border of zeros up to that size, as
    MNIST does in the paper; for larger ones the last maps are averaged down to 5 x 5.
    """

    def __init__(self, in_channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)
        initialize(self)

    def forward(self, image: Tensor) -> Tensor:
        maps = F.max_pool2d(F.relu(self.conv1(_at_least(image, SIDE))), 2)
        maps = F.max_pool2d(F.relu(self.conv2(maps)), 2)
        features = torch.flatten(F.adaptive_avg_pool2d(maps, 5), 1)
        logits: Tensor = self.fc3(F.relu(self.fc2(F.relu(self.fc1(features)))))
        return logits


def _at_least(image: Tensor, side: int) -> Tensor:
    """Return the image centred in zeros, at least `side` high and wide."""
    missing_h, missing_w = (max(side - size, 0) for size in image.shape[-2:])
    if missing_h == missing_w == 0:
        return image
    top, left = missing_h // 2, missing_w // 2
    return F.pad(image, (left, missing_w - left, top, missing_h - top))
