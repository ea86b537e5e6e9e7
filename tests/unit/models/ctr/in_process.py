"""Models with tables in this process, as tests of recommender models use them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from flambeau.config import optim
from flambeau.embeddings import train_in_process
from flambeau.embeddings.own_loop import TableTraining


def ready(model: nn.Module, lr: float = 0.1) -> TableTraining:
    """The model with its tables attached; rows appear when they are trained."""
    return train_in_process(model, optim("adagrad", lr=lr))


def train(model: nn.Module, loss: Callable[[], Tensor], steps: int = 12) -> tuple[float, float]:
    """The loss before and after some steps."""
    torch.manual_seed(0)
    tables = ready(model)
    values = []
    model.train()
    for _ in range(steps):
        value = loss()
        model.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.2 * parameter.grad
        tables.step()
        values.append(value.item())
    return values[0], values[-1]


def applied(layers: nn.Module, row: Tensor) -> Tensor:
    """What layers give for one vector, written out."""
    assert isinstance(layers, nn.Sequential)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            row = torch.stack([(weights * row).sum() for weights in layer.weight]) + layer.bias
        elif isinstance(layer, nn.ReLU):
            row = torch.where(row > 0, row, torch.zeros_like(row))
    return row
