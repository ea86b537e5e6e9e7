"""Tables in the user's own training loop, without `fit`."""

from typing import final

from torch import nn

from flambeau.config.optimizer import OptimizerSpec
from flambeau.embeddings.attach import attach
from flambeau.embeddings.external import initial_rows
from flambeau.embeddings.in_process import InProcessTables
from flambeau.embeddings.lookups import Lookups
from flambeau.errors import ModelError


@final
class TableTraining:
    """Updates of a model's tables, next to the optimizer of its parameters."""

    def __init__(
        self, tables: InProcessTables, lookups: Lookups, optimizer: OptimizerSpec | None
    ) -> None:
        self.tables, self.lookups, self._optimizer = tables, lookups, optimizer

    def step(self, factor: float = 1.0) -> None:
        """Apply the gradients since the last step; `factor` multiplies the learning rate."""
        gradients = self.lookups.gradients()
        for gradient in gradients:
            if self._optimizer is None and gradient.spec.optimizer is None:
                raise ModelError(
                    f"table '{gradient.spec.name}' has no optimizer: give one to "
                    "train_in_process(model, fb.optim('adagrad', lr=0.05)), or to its spec"
                )
        self.tables.push(gradients, factor)

    def discard(self) -> None:
        """Discard the gradients since the last step, for example of a batch that is skipped."""
        self.lookups.discard()


def train_in_process(
    model: nn.Module, optimizer: OptimizerSpec | None = None, seed: int = 0
) -> TableTraining:
    """Attach tables in this process to a model, to train it in your own loop.

    `optimizer` is for tables whose spec has none. `seed` determines the first values of rows.

        model = nn.Sequential(SparseEmbedding(TableSpec("item", 16), "mean"), nn.Linear(16, 1))
        dense = torch.optim.Adam(model.parameters())
        tables = train_in_process(model, fb.optim("adagrad", lr=0.05))
        for ids, label in batches:
            loss = binary_cross_entropy_with_logits(model(ids)[:, 0], label)
            dense.zero_grad()
            loss.backward()
            dense.step()
            tables.step()

    Every training forward pass counts until the next `step` (or `discard`).
    """
    tables = InProcessTables(seed, optimizer)
    lookups = Lookups(tables)
    attach(model, lookups)
    for spec, ids, values in initial_rows(model):
        tables.load(spec, ids, values)
    return TableTraining(tables, lookups, optimizer)
