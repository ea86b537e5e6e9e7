"""Embeddings of the fields of recommender models: one table for all fields."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from flambeau.config.tables import TableSpec
from flambeau.data.jagged import Jagged
from flambeau.embeddings.small_fields import SmallFields
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS

Ids = Tensor | Jagged


@final
class FieldEmbedding(nn.Module):
    """Rows [rows, fields, dim] for the ids of a batch, in any of these forms.

    - a tensor [rows, fields]: one id in each field;
    - a `Jagged` of `fields` bags in a row: several ids in a field are summed, a missing one is 0;
    - a `Jagged` of one bag in a row whose ids record their fields (libffm): grouped by field;
    - a `Jagged` of one bag in a row with as many ids as there are fields (libsvm, dummy).

    Values of ids multiply their rows. `table` are further settings of the table, by name
    (`initializer`, `optimizer`, `admission`, ...). `prefetch` is the name of the model's `forward`
    argument with the ids. `small` fields have weights in the model (`dense`) instead of rows in the
    table (`rows`).
    """

    def __init__(
        self,
        fields: int | None,
        dim: int,
        name: str = EMBEDDINGS,
        prefetch: str = "ids",
        small: SmallFields | None = None,
        **table: Any,
    ) -> None:
        super().__init__()
        if not fields or fields < 1:
            raise ModelError(
                f"fields={fields}: this model needs a number of fields, at least 1; LR and FM also "
                "take ids without fields"
            )
        if dim < 1:
            raise ModelError(f"embedding_dim={dim}: must be at least 1")
        # Loads Numba, which models without tables do not need.
        from flambeau.embeddings import SparseEmbedding
        from flambeau.embeddings.dense_fields import DenseFields

        self.fields, self.dim = fields, dim
        spec = TableSpec(name, dim, **table)
        only = None if small is None else small.others
        self.rows = (
            None
            if only == ()
            else SparseEmbedding(spec, "sum", prefetch=prefetch, fields=fields, only=only)
        )
        self.dense = None if small is None else DenseFields(small, spec)
        self._runs = [] if small is None else _runs(small.places, fields)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if not hasattr(self, "dense"):  # saved before small fields existed
            self.dense, self._runs = None, []

    def forward(self, ids: Ids) -> Tensor:
        """Return one row for each field. [rows, fields, dim]"""
        if isinstance(ids, Tensor):
            ids = as_rows(ids)
        rows: Tensor | None = None if self.rows is None else self.rows(ids)
        dense: Tensor | None = None if self.dense is None else self.dense(ids)
        if rows is None or dense is None:
            return cast(Tensor, dense if rows is None else rows)
        both = (rows, dense)
        return torch.cat([both[kind][:, start:stop] for kind, start, stop in self._runs], dim=1)


def _runs(places: Sequence[int], fields: int) -> list[tuple[int, int, int]]:
    """Return runs of consecutive fields of one kind: (1 if dense, start, stop) within the kind."""
    runs: list[tuple[int, int, int]] = []
    done = [0, 0]
    for kind, group in groupby(int(field in places) for field in range(fields)):
        start = done[kind]
        done[kind] += len(list(group))
        runs.append((kind, start, done[kind]))
    return runs


def as_rows(ids: Tensor) -> Tensor:
    """Return ids as [rows, n]; one column [rows] becomes [rows, 1]."""
    if ids.dim() not in (1, 2):
        raise ModelError(f"ids have shape {tuple(ids.shape)}; give [rows, fields]")
    return ids[:, None] if ids.dim() == 1 else ids
