"""Making the look-ups of an exported model: ids in, and what the graph takes out."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from torch import Tensor

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import LookupBackend
from flambeau.embeddings.lookups import Lookups
from flambeau.embeddings.sparse_embedding import Pooling, SparseEmbedding
from flambeau.inference.arguments import Leaf
from flambeau.inference.lookup_calls import Lookup


@final
class LookUps:
    """Looks up as the model's own modules did. Any number of threads may use it."""

    def __init__(self, lookups: Sequence[Lookup], backend: LookupBackend) -> None:
        self._lookups, self._backend = lookups, backend
        self._own = threading.local()

    def __call__(self, values: Mapping[str, Leaf]) -> list[Tensor]:
        """The results in order, a padded one followed by its mask; `values` are the arguments."""
        out: list[Tensor] = []
        for lookup, module in zip(self._lookups, self._modules(), strict=True):
            found = module(lookup.ids(values))
            out += found if isinstance(found, tuple) else [found]
        return out

    def _modules(self) -> list[SparseEmbedding]:
        """The modules of this thread: they work in memory of their own."""
        made: list[SparseEmbedding] | None = getattr(self._own, "modules", None)
        if made is None:
            shared = Lookups(self._backend)
            made = self._own.modules = [_module(lookup, shared) for lookup in self._lookups]
        return made


def _module(lookup: Lookup, lookups: Lookups) -> SparseEmbedding:
    dtype: Any = "fp64" if lookup.dtype == "float64" else "fp32"
    fields = len(lookup.field_salts) or None
    spec = TableSpec(lookup.table, lookup.dim, dtype=dtype)
    module = SparseEmbedding(spec, cast(Pooling, lookup.pooling), fields=fields, only=lookup.only)
    module.lookups = lookups
    return module.eval()
