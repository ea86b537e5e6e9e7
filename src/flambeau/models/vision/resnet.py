"""ResNet-18 to ResNet-152 (He et al. 2016), for small images or for those of ImageNet's size."""

from collections.abc import Sequence
from typing import ClassVar, Literal, final

from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.models.vision.kaiming import initialize

Stem = Literal["cifar", "imagenet"]


@final
class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.downsample(x), inplace=True)


@final
class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 convolutions that narrow and widen, and a shortcut."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        # The stride is here and not on conv1, which would skip three of four values.
        self.conv2 = _conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        out = self.bn3(self.conv3(out))
        return F.relu(out + self.downsample(x), inplace=True)


Block = type[BasicBlock] | type[Bottleneck]


@final
class ResNet(nn.Module):
    """Four stages of residual blocks, global average pooling and one linear layer.

    `stem="cifar"` starts with a 3 x 3 convolution at full resolution, for images of about 8 to 64
    pixels; `stem="imagenet"` with the 7 x 7 convolution of stride 2 and the max pooling of the
    paper, and then the parameters have the names and shapes of torchvision's.
    """

    def __init__(
        self,
        block: Block,
        depths: Sequence[int],
        in_channels: int = 3,
        classes: int = 10,
        stem: Stem = "cifar",
    ) -> None:
        super().__init__()
        first, second, third, fourth = depths
        self.conv1 = _stem_convolution(in_channels, stem)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "imagenet" else nn.Identity()
        self.layer1 = _stage(block, 64, 64, first, stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, second, stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, third, stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, fourth, stride=2)
        self.fc = nn.Linear(512 * block.expansion, classes)
        initialize(self)

    def forward(self, image: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(image)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18(in_channels: int = 3, classes: int = 10, stem: Stem = "cifar") -> ResNet:
    """Build a ResNet-18 (11.2 M parameters)."""
    return ResNet(BasicBlock, (2, 2, 2, 2), in_channels, classes, stem)


def resnet34(in_channels: int = 3, classes: int = 10, stem: Stem = "cifar") -> ResNet:
    """Build a ResNet-34 (21.3 M parameters)."""
    return ResNet(BasicBlock, (3, 4, 6, 3), in_channels, classes, stem)


def resnet50(in_channels: int = 3, classes: int = 10, stem: Stem = "cifar") -> ResNet:
    """Build a ResNet-50 (23.5 M parameters)."""
    return ResNet(Bottleneck, (3, 4, 6, 3), in_channels, classes, stem)


def resnet101(in_channels: int = 3, classes: int = 10, stem: Stem = "cifar") -> ResNet:
    """Build a ResNet-101 (42.5 M parameters)."""
    return ResNet(Bottleneck, (3, 4, 23, 3), in_channels, classes, stem)


def resnet152(in_channels: int = 3, classes: int = 10, stem: Stem = "cifar") -> ResNet:
    """Build a ResNet-152 (58.2 M parameters)."""
    return ResNet(Bottleneck, (3, 8, 36, 3), in_channels, classes, stem)


def _stem_convolution(in_channels: int, stem: str) -> nn.Conv2d:
    if stem == "cifar":
        return _conv3x3(in_channels, 64)
    if stem == "imagenet":
        return nn.Conv2d(in_channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    raise ConfigError(f"stem={stem!r}: unknown stem; {nearest(stem, ('cifar', 'imagenet'))}")


def _stage(block: Block, inputs: int, width: int, depth: int, stride: int) -> nn.Sequential:
    """Return `depth` blocks, the first of which has the stride."""
    rest = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(inputs, width, stride), *rest)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return the identity where shapes agree, otherwise a projection."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    projection = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(outputs))


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
