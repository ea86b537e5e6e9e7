"""Two towers: users and items as vectors whose product scores how well they match."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor, nn
from torch.nn import functional

from flambeau.models.ctr.layers.dense_layers import dense_layers
from flambeau.models.ctr.layers.fields import Ids
from flambeau.models.ctr.layers.flat_inputs import FlatInputs
from flambeau.models.ctr.layers.in_batch import InBatchLogits


@final
class TwoTower(nn.Module):
    """User tower and item tower, trained with `loss="in_batch_softmax"`.

    Each has a table for its fields, and optionally numbers. The first field of an item identifies
    it. Vectors have length 1; their product is divided by `temperature`. `correct`, `buckets` and
    `rate` configure the logQ correction: see `InBatchLogits`. `table=` are further settings of both
    tables.
    """

    def __init__(
        self,
        user_fields: int = 1,
        item_fields: int = 1,
        embedding_dim: int = 16,
        hidden: Sequence[int] = (64,),
        vector_dim: int = 32,
        *,
        user_dense: int = 0,
        item_dense: int = 0,
        dropout: float = 0.0,
        temperature: float = 0.05,
        correct: bool = True,
        buckets: int = 1 << 16,
        rate: float = 0.001,
        table: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.user_inputs = FlatInputs(
            user_fields, user_dense, embedding_dim, "user", "user", "user_dense", **(table or {})
        )
        self.item_inputs = FlatInputs(
            item_fields, item_dense, embedding_dim, "item", "item", "item_dense", **(table or {})
        )
        self.user_tower = dense_layers(self.user_inputs.width, hidden, vector_dim, dropout)
        self.item_tower = dense_layers(self.item_inputs.width, hidden, vector_dim, dropout)
        self.logits = InBatchLogits(temperature, correct=correct, buckets=buckets, rate=rate)

    def forward(
        self,
        user: Ids,
        item: Ids,
        user_dense: Tensor | None = None,
        item_dense: Tensor | None = None,
        item_probability: Tensor | None = None,
    ) -> Tensor:
        """Return logits [rows, rows] of each user for every item, its own on the diagonal.

        `item_probability` [rows] is an item's share of the rows, if the data provides it.
        """
        users = self.user_vectors(user, user_dense)
        items = self.item_vectors(item, item_dense)
        logits: Tensor = self.logits(users, items, item, item_probability)
        return logits

    def user_vectors(self, user: Ids, user_dense: Tensor | None = None) -> Tensor:
        """Return the users' vectors [rows, vector_dim] of length 1."""
        return functional.normalize(self.user_tower(self.user_inputs(user, user_dense)), dim=1)

    def item_vectors(self, item: Ids, item_dense: Tensor | None = None) -> Tensor:
        """Return the items' vectors [rows, vector_dim] of length 1."""
        return functional.normalize(self.item_tower(self.item_inputs(item, item_dense)), dim=1)
