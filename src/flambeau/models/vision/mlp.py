"""A multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

from torch import Tensor, nn

from flambeau.models.vision.kaiming import initialize


@final
class MLP(nn.Module):
    """Linear layers with ReLU between them, over all values of an image.

    `inputs` is the number of values of an image: 784 for 1 x 28 x 28. Images may have any shape.
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (256, 256), classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise((inputs, *hidden)):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        layers.append(nn.Linear((inputs, *hidden)[-1], classes))
        self.layers = nn.Sequential(*layers)
        initialize(self)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.layers(image)
        return logits
