"""Fields with few values, as ordinary weights that every worker has, instead of table rows."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from flambeau.config.tables import Initializer, TableSpec
from flambeau.data.jagged import Jagged
from flambeau.embeddings import bags
from flambeau.embeddings.fields import by_field
from flambeau.embeddings.small_fields import SmallFields
from flambeau.errors import DataError, ModelError


@final
class DenseFields(nn.Embedding):
    """Embeddings of small fields, one after the other in one weight [sum of sizes, dim].

    They are initialised and pooled as those of a table with the same spec, and trained by the
    optimizer of the dense weights: the replicas of workers are all-reduced like all others. An id
    outside of 0 to size - 1 raises `DataError` that names the field. In an exported graph
    (`checked` is False), which cannot raise, it reads as zeros, as a missing id does.
    """

    def __init__(self, small: SmallFields, spec: TableSpec) -> None:
        if spec.init is not None:
            raise ModelError(
                f"table '{spec.name}': init={spec.init!r} has rows by id, which fields below "
                "dense_below do not have: leave init or dense_below out"
            )
        self.small, self.table, self.initializer = small, spec.name, spec.initializer
        self.checked = True
        dtype = torch.float64 if spec.dtype == "fp64" else torch.float32
        super().__init__(sum(small.sizes), spec.dim, dtype=dtype)
        self.weight.requires_grad_(spec.trainable)
        sizes = torch.tensor(small.sizes)
        self.places: Tensor
        self.sizes: Tensor
        self.starts: Tensor
        self.register_buffer("places", torch.tensor(small.places))
        self.register_buffer("sizes", sizes)
        self.register_buffer("starts", sizes.cumsum(0) - sizes)

    def reset_parameters(self) -> None:
        """Set the first values, distributed as those of the table."""
        _fill(self.weight, self.initializer)

    def forward(self, input: Tensor | Jagged) -> Tensor:
        """Return rows for ids of all fields, [rows, fields] or bags: [rows, small fields, dim]."""
        if isinstance(input, Jagged):
            return self._pooled(input)
        bags.check_ids(self.table, input)
        bags.check_fields(self.table, input, self.small.fields)
        ids = input.index_select(1, self.places).long()
        if self.checked:
            self._check(ids, self.sizes)
            return functional.embedding(ids + self.starts, self.weight)
        known = (ids >= 0) & (ids < self.sizes)
        rows = functional.embedding(torch.where(known, ids, 0) + self.starts, self.weight)
        return torch.where(known[..., None], rows, torch.zeros_like(rows))

    def _pooled(self, ids: Jagged) -> Tensor:
        """Return the sums over bags; a bag without ids is 0."""
        grouped = by_field(ids, self.small.fields)
        bags.check_width(self.table, grouped, self.small.fields, "sum")
        own = grouped.bags_at(self.small.places)
        bag = torch.repeat_interleave(own.lengths) % len(self.small.places)
        sizes = self.sizes[bag]
        weights = own.values
        if weights is not None:
            bags.check_weights(self.table, "sum", own.ids, weights, self.weight.dtype)
        known = (own.ids >= 0) & (own.ids < sizes)
        if self.checked:
            self._check_bags(own.ids, known, bag)
        else:
            shares = known.to(self.weight.dtype)
            weights = shares if weights is None else weights * shares
        rows = functional.embedding_bag(
            torch.where(known, own.ids, 0) + self.starts[bag],
            self.weight,
            own.offsets,
            mode="sum",
            per_sample_weights=weights,
            include_last_offset=True,
        )
        return rows.view(len(own), len(self.small.places), self.embedding_dim)

    def _check(self, ids: Tensor, sizes: Tensor) -> None:
        if torch.compiler.is_compiling():
            # A compiled graph does not branch on values.
            torch.compiler.disable(self._check_now)(ids, sizes)  # type: ignore[no-untyped-call]
        else:
            self._check_now(ids, sizes)

    def _check_now(self, ids: Tensor, sizes: Tensor) -> None:
        wrong = (ids < 0) | (ids >= sizes)
        if wrong.any():
            row, field = wrong.nonzero()[0].tolist()
            raise self._outside(int(ids[row, field]), field)

    def _check_bags(self, ids: Tensor, known: Tensor, bag: Tensor) -> None:
        if not known.all():
            place = int((~known).nonzero()[0])
            raise self._outside(int(ids[place]), int(bag[place]))

    def _outside(self, id: int, field: int) -> DataError:
        size = self.small.sizes[field]
        return DataError(
            f"field {self.small.names[field]} has the id {id}, and sizes= of the model says that "
            f"its ids are 0 to {size - 1}: give ids that are numbered by the pipeline whose sizes_ "
            "the model was built with, or build it without dense_below"
        )

    def extra_repr(self) -> str:
        places, sizes = list(self.small.places), list(self.small.sizes)
        return f"fields={places}, sizes={sizes}, dim={self.embedding_dim}"


def _fill(weight: Tensor, initializer: Initializer) -> None:
    if initializer.kind == "uniform":
        nn.init.uniform_(weight, -initializer.scale, initializer.scale)
    elif initializer.kind == "normal":
        nn.init.normal_(weight, 0.0, initializer.scale)
    else:
        nn.init.constant_(weight, initializer.value)
