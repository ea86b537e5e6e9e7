"""Initial weights of networks with ReLU (He et al. 2015)."""

from torch import nn


def initialize(model: nn.Module) -> None:
    """Draw new weights for all convolutions and linear layers, and set biases to zero.

    Convolutions keep the variance of the gradients (fan out), linear layers that of the activations
    (fan in).
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
