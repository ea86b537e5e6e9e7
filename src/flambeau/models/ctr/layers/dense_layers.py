"""A stack of linear layers, as in towers, experts and the tops of recommender models."""

from collections.abc import Sequence

from torch import nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import begin_at


def dense_layers(
    inputs: int,
    hidden: Sequence[int],
    outputs: int | None = None,
    dropout: float = 0.0,
    base_rate: float | None = None,
) -> nn.Sequential:
    """Return linear layers with ReLU (and dropout) from `inputs` to the last of `hidden`.

    With `outputs`, a last linear layer without ReLU follows, which returns logits that start at
    `base_rate`, if given. [..., inputs] -> [..., outputs]
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
    if outputs is not None:
        last = nn.Linear(inputs, outputs)
        if base_rate is not None:
            begin_at(base_rate, last.bias)
        layers.append(last)
    return nn.Sequential(*layers)
