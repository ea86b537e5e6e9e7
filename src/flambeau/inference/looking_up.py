"""Lookups of an exported model: from ids to the inputs of the graph."""

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
    """Lookups with the modules of the model. Thread-safe."""

    def __init__(self, lookups: Sequence[Lookup], backend: LookupBackend) -> None:
        self._lookups, self._backend = lookups, backend
        self._own = threading.local()

    def __call__(self, values: Mapping[str, Leaf]) -> list[Tensor]:
        """Return the results in order, a padded one followed by its mask, for these arguments."""
        out: list[Tensor] = []
        for lookup, module in zip(self._lookups, self._modules(), strict=True):
            found = module(lookup.ids(values))
            out += found if isinstance(found, tuple) else [found]
        return out

    def _modules(self) -> list[SparseEmbedding]:
        """Return the modules of this thread, each of which has its own memory."""
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
