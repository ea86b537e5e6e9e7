"""How recommender models look ids up: one table for all fields."""

from typing import Any, cast, final

from torch import Tensor, nn

from flambeau.config.tables import TableSpec
from flambeau.data.jagged import Jagged
from flambeau.embeddings import SparseEmbedding
from flambeau.errors import ModelError

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
        self, fields: int, dim: int, name: str = "embeddings", prefetch: str = "ids", **table: Any
    ) -> None:
        super().__init__()
        if fields < 1 or dim < 1:
            raise ModelError(f"fields={fields} and dim={dim}: both must be at least 1")
        self.fields, self.dim = fields, dim
        spec = TableSpec(name, dim, **table)
        self.rows = SparseEmbedding(spec, "sum", prefetch=prefetch, fields=fields)

    def forward(self, ids: Ids) -> Tensor:
        """One row for each field. [rows, fields, dim]"""
        return cast(Tensor, self.rows(by_field(ids, self.fields)))


def by_field(ids: Ids, fields: int) -> Ids:
    """The ids with one bag for each field, or as they are."""
    if isinstance(ids, Tensor) or ids.width == fields != 1:
        return ids
    if ids.fields is not None:
        return ids.by_field(fields)
    return ids if fields == 1 else ids.each(fields)
