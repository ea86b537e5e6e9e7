"""How recommender models look ids up: one table for all fields."""

from typing import Any, cast, final

from torch import Tensor, nn

from flambeau.config.tables import TableSpec
from flambeau.data.jagged import Jagged
from flambeau.errors import ModelError
from flambeau.models.ctr.layers.table_settings import EMBEDDINGS

Ids = Tensor | Jagged


@final
class FieldEmbedding(nn.Module):
    """Rows [rows, fields, dim] for the ids of a batch, whatever form they come in.

    - a tensor [rows, fields]: one id in each field;
    - a `Jagged` of `fields` bags in a row: several ids in a field are summed, a missing one is 0;
    - a `Jagged` of one bag in a row whose ids know their fields (libffm): grouped by field;
    - a `Jagged` of one bag in a row with as many ids as there are fields (libsvm, dummy).

    Values of ids multiply their rows. `table` are further settings of the table, by name
    (`initializer`, `optimizer`, `admission`, ...). `prefetch` is the name under which `forward` of
    the model gets the ids.
    """

    def __init__(
        self,
        fields: int | None,
        dim: int,
        name: str = EMBEDDINGS,
        prefetch: str = "ids",
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
        # Loads Numba, which models without tables do without.
        from flambeau.embeddings import SparseEmbedding

        self.fields, self.dim = fields, dim
        spec = TableSpec(name, dim, **table)
        self.rows = SparseEmbedding(spec, "sum", prefetch=prefetch, fields=fields)

    def forward(self, ids: Ids) -> Tensor:
        """One row for each field. [rows, fields, dim]"""
        if isinstance(ids, Tensor):
            ids = as_rows(ids)
        return cast(Tensor, self.rows(ids))


def as_rows(ids: Tensor) -> Tensor:
    """Ids [rows, n]; of one column [rows], n is 1."""
    if ids.dim() not in (1, 2):
        raise ModelError(f"ids have shape {tuple(ids.shape)}; give [rows, fields]")
    return ids[:, None] if ids.dim() == 1 else ids
