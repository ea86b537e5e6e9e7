"""ESMM: clicks, and conversions that follow a click, learnt from all rows."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.dense_layers import dense_layers
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.flat_inputs import FlatInputs
from flambeau.models.ctr.mmoe import checked_rates


@final
class ESMM(nn.Module):
    """Logits of a click, and of a click that is followed by a conversion.

    P(click and conversion) = P(click) x P(conversion | click), each factor a tower over the same
    embeddings. Both labels are known for every row shown, clicked or not, so the second tower
    learns from all rows without being trained on its own. The product is returned as a logit, so
    that both tasks have the loss "bce". `tasks` are the names of the two outputs; `base_rates` are
    the shares of rows with a click and with both, from which training starts; `table` are further
    settings of the table.
    """

    def __init__(
        self,
        fields: int,
        dense: int = 0,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (128, 64),
        tasks: Sequence[str] = ("click", "conversion"),
        *,
        dropout: float = 0.0,
        base_rates: Sequence[float] | None = None,
        table: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        rates = checked_rates(tasks, base_rates)
        if len(tasks) != 2:
            raise ModelError(f"tasks={list(tasks)}: give two, the click and the conversion")
        clicks, conversions = _factors(*rates)
        self.inputs = FlatInputs(fields, dense, embedding_dim, **(table or {}))
        width = self.inputs.width
        self.click = dense_layers(width, hidden, 1, dropout, clicks)
        self.conversion = dense_layers(width, hidden, 1, dropout, conversions)
        self.tasks = tuple(tasks)

    def forward(self, ids: Ids, dense: Tensor | None = None) -> dict[str, Tensor]:
        """Return logits [rows] of both tasks, for ids [rows, fields] and numbers [rows, dense]."""
        click, conversion = self.rates(ids, dense)
        return dict(zip(self.tasks, (click, both(click, conversion)), strict=True))

    def rates(self, ids: Ids, dense: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits [rows] of a click, and of a conversion after one."""
        inputs = self.inputs(ids, dense)
        return self.click(inputs).squeeze(1), self.conversion(inputs).squeeze(1)


def both(first: Tensor, second: Tensor) -> Tensor:
    """Return the logit of sigmoid(first) * sigmoid(second), exact also close to 0 and 1."""
    yes = logsigmoid(first) + logsigmoid(second)
    no = torch.logaddexp(logsigmoid(-first), logsigmoid(first) + logsigmoid(-second))
    return yes - no


def _factors(click: float | None, both: float | None) -> tuple[float | None, float | None]:
    """Return the share of clicks, and that of conversions among them."""
    if click is None or both is None:
        return None, None
    if not both < click:
        raise ModelError(
            f"base_rates={[click, both]}: give the share of rows with a click, and the smaller one "
            "of those with a click and a conversion"
        )
    return click, both / click
