"""The feature pipeline of Criteo's click logs."""

from flambeau.features.operation import Operation
from flambeau.features.operations.categorify import Categorify
from flambeau.features.operations.hashing import Hash
from flambeau.features.operations.numbers import Log
from flambeau.features.pipeline import Pipeline


def criteo(
    min_count: int = 1,
    max_size: int | None = None,
    *,
    vocabulary: bool = True,
    dense_columns: int = 13,
    id_columns: int = 26,
) -> Pipeline:
    """Return the pipeline for Criteo's logs: columns `I1`, ... and `C1`, ... of features.

    Numbers become log(1 + x), or 0 if they are missing or negative. Texts become ids from 1 by
    descending frequency, or 0 if they occur fewer than `min_count` times; without a `vocabulary`
    they become 64-bit hashes, for tables that grow. Files are read as Criteo's logs unless they
    specify another format.
    """
    numbers, texts = (f"I1:I{dense_columns}",), (f"C1:C{id_columns}",)
    operations: list[Operation] = [Log(columns=numbers)] if dense_columns else []
    operations += [Hash(columns=texts, empty_is_missing=True)] if id_columns else []
    if vocabulary and id_columns:
        operations.append(Categorify(columns=texts, min_count=min_count, max_size=max_size))
    return Pipeline(operations, format="criteo")
