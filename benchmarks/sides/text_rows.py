"""Read a whole text file once: sparse rows to Arrow batches, or a peer's reader to its own form.

Prints one line of JSON: rows, seconds and peak resident memory. Every side is warmed up on a small
file of the same kind first, so that neither compilation nor imports count.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

INTEGERS = [f"I{n}" for n in range(1, 14)]
TEXTS = [f"C{n}" for n in range(1, 27)]


def libsvm(path: str) -> int:
    """Our libsvm reader, to Arrow batches."""
    from flambeau.data.sources.text.libsvm import open_libsvm

    return _batches(open_libsvm(path))


def criteo(path: str) -> int:
    """Our Criteo reader, to Arrow batches."""
    from flambeau.data.sources.text.criteo import open_criteo

    return _batches(open_criteo(path))


def sklearn(path: str) -> int:
    """scikit-learn, to a sparse matrix."""
    from sklearn.datasets import load_svmlight_file

    matrix, labels = load_svmlight_file(path, zero_based=False)
    assert matrix.shape[0] == len(labels)
    return len(labels)


def polars(path: str) -> int:
    """Polars, to a frame of the same columns, with its own number of threads."""
    import polars as pl

    schema: dict[str, Any] = {"label": pl.Float32}
    schema |= dict.fromkeys(INTEGERS, pl.Float32) | dict.fromkeys(TEXTS, pl.String)
    frame = pl.read_csv(path, separator="\t", has_header=False, schema=schema, quote_char=None)
    return len(frame)


def _batches(source: Any) -> int:
    """All rows, after the count of rows that a training does too."""
    names = source.schema.names
    found = (batch for shard in source.shards() for batch in source.read(shard, names))
    return sum(batch.num_rows for batch in found)


SIDES: dict[str, Callable[[str], int]] = {
    side.__name__: side for side in (libsvm, criteo, sklearn, polars)
}


def main() -> None:
    """Read the small file, then time the other one."""
    side, small, path = SIDES[sys.argv[1]], sys.argv[2], sys.argv[3]
    side(small)
    started = time.perf_counter()
    rows = side(path)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mb": peak}))


if __name__ == "__main__":
    main()
