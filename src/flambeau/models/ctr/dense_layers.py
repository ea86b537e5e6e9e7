"""Layers one after the other, as towers, experts and the tops of recommender models are."""

from collections.abc import Sequence

from torch import nn

from flambeau.errors import ModelError


def dense_layers(
    inputs: int, hidden: Sequence[int], outputs: int | None = None, dropout: float = 0.0
) -> nn.Sequential:
    """Linear layers with ReLU (and dropout) between `inputs` and the last of `hidden`.

    With `outputs` a last linear layer without ReLU follows. [..., inputs] -> [..., outputs]
    """
    if inputs < 1 or any(size < 1 for size in hidden):
        raise ModelError(f"layers of {inputs} inputs and {list(hidden)}: each must be at least 1")
    if not 0.0 <= dropout < 1.0:
        raise ModelError(f"dropout={dropout}: give a share from 0 to below 1")
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        inputs = size
    layers += [nn.Linear(inputs, outputs)] if outputs is not None else []
    return nn.Sequential(*layers)
