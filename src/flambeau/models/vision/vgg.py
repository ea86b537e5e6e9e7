"""VGG-11 to VGG-19 (Simonyan and Zisserman 2015), with and without batch normalisation."""

from collections.abc import Iterator
from typing import Literal, final

import torch
from torch import Tensor, nn

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.models.vision.kaiming import initialize

Head = Literal["small", "imagenet"]

WIDTHS = (64, 128, 256, 512, 512)

#: Convolutions in each of the five stages, by the number of layers with weights.
STAGES = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


@final
class VGG(nn.Module):
    """Five stages of 3 x 3 convolutions with max pooling after each, and a classifier.

    `head="small"` is global average pooling and one linear layer, for images of any size.
    `head="imagenet"` is the paper's, three linear layers on 7 x 7 maps with dropout, for images of
    at least 32 pixels; then the parameters have the names and shapes of torchvision's.
    """

    def __init__(
        self,
        depth: int,
        in_channels: int = 3,
        classes: int = 10,
        head: Head = "small",
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if depth not in STAGES:
            raise ConfigError(f"depth={depth}: must be one of {', '.join(map(str, STAGES))}")
        # Rounding sizes up keeps a pixel of images that five poolings would reduce to nothing.
        pool_up = head == "small"
        self.features = nn.Sequential(*_layers(STAGES[depth], in_channels, batch_norm, pool_up))
        self.avgpool = nn.AdaptiveAvgPool2d(7 if head == "imagenet" else 1)
        self.classifier = _classifier(classes, head)
        initialize(self)

    def forward(self, image: Tensor) -> Tensor:
        maps = self.avgpool(self.features(image))
        logits: Tensor = self.classifier(torch.flatten(maps, 1))
        return logits


def vgg11(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-11 (9.2 M parameters)."""
    return VGG(11, in_channels, classes, head)


def vgg11_bn(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-11 with batch normalisation."""
    return VGG(11, in_channels, classes, head, batch_norm=True)


def vgg13(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-13 (9.4 M parameters)."""
    return VGG(13, in_channels, classes, head)


def vgg13_bn(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-13 with batch normalisation."""
    return VGG(13, in_channels, classes, head, batch_norm=True)


def vgg16(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-16 (14.7 M parameters)."""
    return VGG(16, in_channels, classes, head)


def vgg16_bn(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-16 with batch normalisation."""
    return VGG(16, in_channels, classes, head, batch_norm=True)


def vgg19(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-19 (20.0 M parameters)."""
    return VGG(19, in_channels, classes, head)


def vgg19_bn(in_channels: int = 3, classes: int = 10, head: Head = "small") -> VGG:
    """Build a VGG-19 with batch normalisation."""
    return VGG(19, in_channels, classes, head, batch_norm=True)


def _layers(
    stages: tuple[int, ...], inputs: int, batch_norm: bool, pool_up: bool
) -> Iterator[nn.Module]:
    for convolutions, width in zip(stages, WIDTHS, strict=True):
        for _ in range(convolutions):
            yield nn.Conv2d(inputs, width, kernel_size=3, padding=1)
            if batch_norm:
                yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            inputs = width
        yield nn.MaxPool2d(2, ceil_mode=pool_up)


def _classifier(classes: int, head: str) -> nn.Sequential:
    if head == "small":
        return nn.Sequential(nn.Linear(WIDTHS[-1], classes))
    if head == "imagenet":
        first = (nn.Linear(WIDTHS[-1] * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout())
        second = (nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout())
        return nn.Sequential(*first, *second, nn.Linear(4096, classes))
    raise ConfigError(f"head={head!r}: unknown head; {nearest(head, ('imagenet', 'small'))}")
