"""MMoE: tasks that share experts, each with its own mixture of them."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.base_rate import require_share
from flambeau.models.ctr.layers.dense_layers import dense_layers
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.flat_inputs import FlatInputs


@final
class MMoE(nn.Module):
    """Logits by task, from experts that all tasks share.

    Each of `experts` is a network of the layers `hidden`; a task's gate, a softmax of a linear
    layer, weighs the experts for its tower (the layers `tower`). `base_rates` are the shares of
    ones among the labels of each task, from which its logits start. `table=` are further settings
    of the table.
    """

    def __init__(
        self,
        fields: int,
        dense: int = 0,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (128, 64),
        *,
        tasks: Sequence[str],
        experts: int = 4,
        tower: Sequence[int] = (32,),
        dropout: float = 0.0,
        base_rates: Sequence[float] | None = None,
        table: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        rates = checked_rates(tasks, base_rates)
        if experts < 1 or not hidden:
            raise ModelError(f"experts={experts} of the layers {list(hidden)}: give some of both")
        self.inputs = FlatInputs(fields, dense, embedding_dim, **(table or {}))
        width = self.inputs.width
        self.experts = nn.ModuleList(
            dense_layers(width, hidden, dropout=dropout) for _ in range(experts)
        )
        self.gates = nn.ModuleList(nn.Linear(width, experts) for _ in tasks)
        self.towers = nn.ModuleList(
            dense_layers(hidden[-1], tower, 1, dropout, rate) for rate in rates
        )
        self.tasks = tuple(tasks)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> dict[str, Tensor]:
        """Return logits [rows] of each task for ids [rows, fields] and numbers [rows, dense]."""
        inputs = self.inputs(ids, dense)
        known = torch.stack([expert(inputs) for expert in self.experts], dim=1)
        logits = {}
        for task, gate, tower in zip(self.tasks, self.gates, self.towers, strict=True):
            shares = torch.softmax(gate(inputs), dim=1)
            logits[task] = tower((shares[:, :, None] * known).sum(dim=1)).squeeze(1)
        return logits


def checked_rates(
    tasks: Sequence[str], base_rates: Sequence[float] | None
) -> Sequence[float | None]:
    """Return the base rate of each task; raise `ModelError` unless tasks have distinct names."""
    if isinstance(tasks, str) or not tasks or len(set(tasks)) != len(tasks):
        raise ModelError(f"tasks={tasks!r}: give different names, as label= has them")
    if base_rates is None:
        return [None] * len(tasks)
    if len(base_rates) != len(tasks):
        raise ModelError(f"base_rates={list(base_rates)}: give one for each of {list(tasks)}")
    for task, rate in zip(tasks, base_rates, strict=True):
        require_share(rate, f"base_rates has {rate!r} for {task!r}")
    return base_rates
