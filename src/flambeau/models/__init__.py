"""Models by name, each a plain `nn.Module`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from flambeau.config.settings import nearest
from flambeau.errors import ConfigError
from flambeau.models.ctr import (
    AFM,
    DCN,
    DLRM,
    FFM,
    FIELD_MODELS,
    FM,
    LR,
    PNN,
    AutoInt,
    DCNv2,
    DeepFM,
    FieldAttention,
    FinalMLP,
    WideAndDeep,
    XDeepFM,
)
from flambeau.models.ctr.layers.sequence_models import (
    DIN,
    ESMM,
    SEQUENCE_MODELS,
    MMoE,
    SASRec,
    TwoTower,
)
from flambeau.models.vision import (
    MLP,
    VGG,
    VISION,
    CifarResNet,
    LeNet,
    ResNet,
    resnet18,
    resnet20,
    resnet32,
    resnet34,
    resnet44,
    resnet50,
    resnet56,
    resnet101,
    resnet110,
    resnet152,
    vgg11,
    vgg11_bn,
    vgg13,
    vgg13_bn,
    vgg16,
    vgg16_bn,
    vgg19,
    vgg19_bn,
)

#: Models that `build` accepts: name -> function or class to call with the model's arguments.
MODELS: Mapping[str, Callable[..., nn.Module]] = {**VISION, **FIELD_MODELS, **SEQUENCE_MODELS}


def build(name: str, **args: Any) -> nn.Module:
    """Build a new model by name, e.g. `build("resnet20", in_channels=1, classes=10)`."""
    if name not in MODELS:
        raise ConfigError(f"model={name!r}: unknown model; {nearest(name, MODELS)}")
    builder = MODELS[name]
    signature = inspect.signature(builder)
    try:
        signature.bind(**args)
    except TypeError as error:
        takes = ", ".join(signature.parameters)
        raise ConfigError(f"arguments of model {name!r}: {error}; it takes {takes}") from None
    return builder(**args)


__all__ = [
    "AFM",
    "DCN",
    "DIN",
    "DLRM",
    "ESMM",
    "FFM",
    "FM",
    "LR",
    "MLP",
    "MODELS",
    "PNN",
    "VGG",
    "AutoInt",
    "CifarResNet",
    "DCNv2",
    "DeepFM",
    "FieldAttention",
    "FinalMLP",
    "LeNet",
    "MMoE",
    "ResNet",
    "SASRec",
    "TwoTower",
    "WideAndDeep",
    "XDeepFM",
    "build",
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
