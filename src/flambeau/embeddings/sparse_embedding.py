"""An embedding whose rows are in a table, not in the model."""

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from flambeau.config.settings import nearest
from flambeau.config.tables import TableSpec
from flambeau.data.jagged import Jagged
from flambeau.embeddings import bags, row_functions
from flambeau.embeddings.fields import by_field
from flambeau.embeddings.lookups import Lookups
from flambeau.embeddings.table_module import TableModule
from flambeau.errors import ModelError
from flambeau.tables.initializers import default_row

Pooling = Literal["none", "sum", "mean", "max", "sum_and_squares"]
POOLINGS = ("none", "sum", "mean", "max", "sum_and_squares")


@final
class SparseEmbedding(TableModule):
    """Embedding of any int64 ids by rows of a table, one row per id, or pooled over bags of ids.

    Modules with equal specs share one table. `prefetch` names the data column with the ids that
    `forward` will receive, so that their rows can be fetched early. The module has no parameters:
    training or prediction attaches its table, which is not copied or pickled with it. Without a
    table, and without gradients, every id reads as the default row.

    With `fields`, ids are [rows, fields], or a `Jagged` of that width: equal ids of different
    fields have different rows, and the result is [rows, fields, dim], bags pooled. A `Jagged` with
    one bag per row is accepted if its ids record their fields, or if there is one per field. With
    `only`, ids are given for all fields, and the result is for these fields, [rows, len(only),
    dim].
    """

    # Modules that were saved before this setting existed do not have it.
    only: tuple[int, ...] | None = None

    def __init__(
        self,
        spec: TableSpec,
        pooling: Pooling | None = "none",
        prefetch: str | None = None,
        *,
        include_last_offset: bool = False,
        fields: int | None = None,
        only: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.spec, self.prefetch, self.include_last_offset = spec, prefetch, include_last_offset
        self.fields = fields
        self.only = None if only is None else bags.checked_places(spec.name, fields, only)
        self.pooling = pooling or "none"
        if self.pooling not in POOLINGS:
            hint = nearest(self.pooling, POOLINGS)
            raise ModelError(f"table '{spec.name}': pooling={pooling!r} is not known; {hint}")
        if fields is not None and self.pooling == "sum_and_squares":
            raise ModelError(
                f"table '{spec.name}': pooling='sum_and_squares' is for bags without fields; with "
                f"fields={fields}, use pooling='sum'"
            )
        self.lookups: Lookups | None = None
        self.copied = False

    @property
    def dtype(self) -> torch.dtype:
        """Type of the results: float64 for a table of fp64, float32 for all others."""
        return torch.float64 if self.spec.dtype == "fp64" else torch.float32

    @property
    def learns(self) -> bool:
        """Return whether a lookup now would be a training lookup."""
        return self.training and torch.is_grad_enabled()

    def forward(
        self, ids: Tensor | Jagged, offsets: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return rows for ids (int64, or narrower integers), on the ids' device.

        - pooling none: [*ids.shape, dim]; with `offsets`, (padded [bags, longest, dim], mask [bags,
          longest]);
        - otherwise: [..., dim], pooled over the last dimension of the ids; with `offsets` [bags],
          the starts of the bags in 1-D ids: [bags, dim]. An empty bag gives zeros;
        - `sum_and_squares`: two of these, the sum of the rows and that of their squares.

        `weights` of the ids' shape multiply the rows of sums. A `Jagged` contains its own offsets
        and weights, and gives [rows, dim], or [rows, width, dim] if a row has several bags. If only
        some ids of a tensor are missing, its `Jagged` gives what the tensor would, also without
        pooling, with zeros for the missing ids.
        """
        if torch.compiler.is_compiling():
            # A lookup uses memory and processes that the compiler cannot see.
            return torch.compiler.disable(self._look_up)(ids, offsets, weights)  # type: ignore[no-any-return,no-untyped-call]
        return self._look_up(ids, offsets, weights)

    def _look_up(
        self, ids: Tensor | Jagged, offsets: Tensor | None, weights: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        with contextlib.nullcontext() if self.lookups is None else self.lookups.watch:
            return self._found(ids, offsets, weights)

    def _found(
        self, ids: Tensor | Jagged, offsets: Tensor | None, weights: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        if isinstance(ids, Jagged):
            assert offsets is None, "a jagged column has its offsets"
            assert weights is None, "a jagged column has its values"
            return self._bags(ids)
        bags.check_ids(self.spec.name, ids)
        if self.fields is not None:
            bags.check_fields(self.spec.name, ids, self.fields)
            return self._each(ids)
        if weights is not None:
            bags.check_weights(self.spec.name, self.pooling, ids, weights, self.dtype)
            weights = weights.flatten().cpu()
        if self.pooling == "none":
            return self._each(ids) if offsets is None else self._padded(ids, offsets)
        ends = self._ends(ids, offsets)
        shape = ids.shape[:-1] if offsets is None else (len(ends) - 1,)
        return self._pooled(*self._rows(ids), ends, weights, shape, ids.device)

    def _bags(self, ids: Jagged) -> Tensor | tuple[Tensor, Tensor]:
        name, device = self.spec.name, ids.ids.device
        if self.fields is not None:
            ids = self._by_field(ids, self.fields)
        bags.check_width(name, ids, self.fields, self.pooling)
        found = self._rows(ids)
        if self.only is not None:
            ids = self._chosen(ids, self.only)
        ends = ids.offsets.int().cpu()
        if self.pooling == "none" and ids.row_shape is not None:
            shape = (len(ids), *ids.row_shape, self.spec.dim)
            return row_functions.pool(*found, ends, "sum").view(shape).to(device)
        if self.pooling == "none":
            rows, mask = row_functions.padded(*found, ends)
            return rows.to(device), mask.to(device)
        weights = ids.values
        if weights is not None:
            bags.check_weights(name, self.pooling, ids.ids, weights, self.dtype)
            weights = weights.cpu()
        shape = (len(ids),) if ids.width == 1 and self.fields is None else (len(ids), ids.width)
        return self._pooled(*found, ends, weights, shape, device)

    def _chosen(self, ids: Jagged, only: tuple[int, ...]) -> Jagged:
        assert self.fields is not None, "checked with only"
        if self.lookups is None:
            return ids.bags_at(only)
        return self.lookups.folds.chosen(ids, self.fields, only)

    def _by_field(self, ids: Jagged, fields: int) -> Jagged:
        grouped = by_field if self.lookups is None else self.lookups.folds.grouped
        return grouped(ids, fields)

    def _pooled(
        self,
        rows: Tensor,
        inverse: Tensor,
        ends: Tensor,
        weights: Tensor | None,
        shape: tuple[int, ...],
        device: torch.device,
    ) -> Tensor | tuple[Tensor, Tensor]:
        def pool(rows: Tensor, mode: Literal["sum", "mean", "max"], by: Tensor | None) -> Tensor:
            pooled = row_functions.pool(rows, inverse, ends, mode, by)
            return pooled.view(*shape, self.spec.dim).to(device)

        assert self.pooling != "none"
        if self.pooling != "sum_and_squares":
            return pool(rows, self.pooling, weights)
        # Square the distinct rows: there are fewer of them than ids.
        squared = None if weights is None else weights.square()
        return pool(rows, "sum", weights), pool(rows.square(), "sum", squared)

    def _each(self, ids: Tensor) -> Tensor:
        rows = row_functions.take(*self._rows(ids))
        shape = ids.shape if self.only is None else (*ids.shape[:-1], len(self.only))
        return rows.view(*shape, self.spec.dim).to(ids.device)

    def _padded(self, ids: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        ends = self._ends(ids, offsets)
        rows, mask = row_functions.padded(*self._rows(ids), ends)
        return rows.to(ids.device), mask.to(ids.device)

    def _ends(self, ids: Tensor, offsets: Tensor | None) -> Tensor:
        if offsets is None:
            return bags.ends_of_rows(self.spec.name, ids)
        return bags.ends_of_offsets(self.spec.name, ids, offsets, self.include_last_offset)

    def _rows(self, ids: Tensor | Jagged) -> tuple[Tensor, Tensor]:
        if self.lookups is not None:
            flat = self.lookups.folds.flat(ids, self.fields, self.only)
            return self.lookups.rows(self.spec, flat, self.learns)
        if self.learns:
            raise ModelError(
                f"table '{self.spec.name}' is not attached, so it cannot be trained; train the "
                "model with fit, or call flambeau.embeddings.train_in_process(model, optimizer) "
                "before a loop of your own (or model.eval() for a look at default rows)"
            )
        if self.copied:
            raise ModelError(
                f"this is a copy of a model whose table '{self.spec.name}' was attached, and "
                "tables are not copied or pickled with a model: use the model itself, or "
                "result.model of its run"
            )
        row = torch.from_numpy(default_row(self.spec))
        if isinstance(ids, Jagged):
            count = len(ids.ids if self.only is None else self._chosen(ids, self.only).ids)
        else:
            count = ids.numel() if self.only is None else ids[..., : len(self.only)].numel()
        return row[None], torch.zeros(count, dtype=torch.int32)

    def __getstate__(self) -> dict[str, Any]:
        copied = self.copied or self.lookups is not None
        return {**self.__dict__, "lookups": None, "copied": copied}

    def extra_repr(self) -> str:
        return f"table={self.spec.name!r}, dim={self.spec.dim}, pooling={self.pooling!r}"
