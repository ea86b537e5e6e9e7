"""ResNet-20 to ResNet-110: the small networks of He et al. (2016), section 4.2, for CIFAR."""

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.errors import ConfigError
from flambeau.models.vision.kaiming import initialize


@final
class CifarBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without parameters (option A of the paper)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + self._shortcut(x), inplace=True)

    def _shortcut(self, x: Tensor) -> Tensor:
        """Return every `stride`-th pixel, with channels of zeros before and after."""
        if self.stride == 1 and self.new_channels == 0:
            return x
        before = self.new_channels // 2
        after = self.new_channels - before
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, after))


@final
class CifarResNet(nn.Module):
    """ResNet with `depth` = 6n + 2 layers: three stages of n blocks, of 16, 32 and 64 channels."""

    def __init__(self, depth: int, in_channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        blocks, remainder = divmod(depth - 2, 6)
        if blocks < 1 or remainder:
            raise ConfigError(f"depth={depth}: must be 6n + 2, such as 20, 32, 44, 56 or 110")
        self.conv1 = _conv3x3(in_channels, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.fc = nn.Linear(64, classes)
        initialize(self)

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(image)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet20(in_channels: int = 3, classes: int = 10) -> CifarResNet:
    """Build a ResNet-20 (0.27 M parameters)."""
    return CifarResNet(20, in_channels, classes)


def resnet32(in_channels: int = 3, classes: int = 10) -> CifarResNet:
    """Build a ResNet-32 (0.46 M parameters)."""
    return CifarResNet(32, in_channels, classes)


def resnet44(in_channels: int = 3, classes: int = 10) -> CifarResNet:
    """Build a ResNet-44 (0.66 M parameters)."""
    return CifarResNet(44, in_channels, classes)


def resnet56(in_channels: int = 3, classes: int = 10) -> CifarResNet:
    """Build a ResNet-56 (0.85 M parameters)."""
    return CifarResNet(56, in_channels, classes)


def resnet110(in_channels: int = 3, classes: int = 10) -> CifarResNet:
    """Build a ResNet-110 (1.7 M parameters)."""
    return CifarResNet(110, in_channels, classes)


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    """Return `blocks` blocks, the first of which has the stride."""
    rest = [CifarBlock(outputs, outputs, 1) for _ in range(blocks - 1)]
    return nn.Sequential(CifarBlock(inputs, outputs, stride), *rest)


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
