"""Image classifiers: float images [batch, channels, h, w] in, logits [batch, classes] out."""

from collections.abc import Callable

from torch import nn

from flambeau.models.vision.lenet import LeNet
from flambeau.models.vision.mlp import MLP
from flambeau.models.vision.resnet import (
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
)
from flambeau.models.vision.resnet_cifar import (
    CifarResNet,
    resnet20,
    resnet32,
    resnet44,
    resnet56,
    resnet110,
)
from flambeau.models.vision.vgg import (
    VGG,
    vgg11,
    vgg11_bn,
    vgg13,
    vgg13_bn,
    vgg16,
    vgg16_bn,
    vgg19,
    vgg19_bn,
)

VISION: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet32": resnet32,
    "resnet34": resnet34,
    "resnet44": resnet44,
    "resnet50": resnet50,
    "resnet56": resnet56,
    "resnet101": resnet101,
    "resnet110": resnet110,
    "resnet152": resnet152,
    "vgg11": vgg11,
    "vgg11_bn": vgg11_bn,
    "vgg13": vgg13,
    "vgg13_bn": vgg13_bn,
    "vgg16": vgg16,
    "vgg16_bn": vgg16_bn,
    "vgg19": vgg19,
    "vgg19_bn": vgg19_bn,
}

__all__ = [
    "MLP",
    "VGG",
    "VISION",
    "CifarResNet",
    "LeNet",
    "ResNet",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "resnet44",
    "resnet50",
    "resnet56",
    "resnet101",
    "resnet110",
    "resnet152",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
]
