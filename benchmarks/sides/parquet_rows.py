"""One reading of the loader benchmark's file, in a fresh process: prints seconds, rows and memory.

parquet_rows.py flambeau|flambeau_shuffled|iter_batches|iter_large|dataset_large FILE
"""

import json
import resource
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import torch
from torch import Tensor

from flambeau.config import Binding, Loading
from flambeau.coordination.plans import StreamedPlan
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import StreamedLoader
from flambeau.data.sources.parquet import ParquetSource
from flambeau.inference.shorthands import expand

BATCH_ROWS = 4096
LARGE_ROWS = 16 * BATCH_ROWS
DENSE = [f"I{number}" for number in range(1, 14)]
IDS = [f"C{number}" for number in range(1, 27)]
LABEL = "label"

Tensors = tuple[Tensor, Tensor, Tensor]


def forward(dense: Tensor, ids: Tensor) -> None:
    """What the columns are bound to."""


def flambeau_loader(path: str, *, shuffle: bool) -> Iterator[Tensors]:
    """Our loader, as one worker has it."""
    source = ParquetSource(path)
    binding = Binding(inputs={"dense": tuple(DENSE), "ids": tuple(IDS)}, label=LABEL)
    binder = Binder(binding, forward, Shape(tuple(source.schema.names)), expand=expand)
    rows = tuple(shard.rows for shard in source.shards())
    plan = StreamedPlan(rows, BATCH_ROWS, workers=1, seed=0, shuffle=shuffle)
    loader = StreamedLoader(source, plan, 0, binder, None, Loading())
    for step in loader.epoch(0):
        yield step.batch["dense"], step.batch["ids"], step.batch[LABEL]


def iter_batches(path: str) -> Iterator[Tensors]:
    """The peer: record batches of the size that is wanted."""
    file = pq.ParquetFile(path)
    return map(tensors, file.iter_batches(BATCH_ROWS, use_threads=True))


def iter_large(path: str) -> Iterator[Tensors]:
    """The peer: larger record batches, which are cut when they are tensors."""
    file = pq.ParquetFile(path)
    return cut(file.iter_batches(LARGE_ROWS, use_threads=True))


def dataset_large(path: str) -> Iterator[Tensors]:
    """The peer: the same from a dataset's scanner, which reads ahead."""
    dataset = pyarrow.dataset.dataset(path)
    return cut(dataset.to_batches(batch_size=LARGE_ROWS, use_threads=True))


def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[Tensors]:
    """Views of at most `BATCH_ROWS` rows."""
    for dense, ids, label in map(tensors, batches):
        for start in range(0, len(label), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            yield dense[rows], ids[rows], label[rows]


def tensors(batch: pa.RecordBatch) -> Tensors:
    """[rows, 13] float32, [rows, 26] int64 and [rows]."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    dense = stacked([columns[name] for name in DENSE], torch.float32)
    ids = stacked([columns[name] for name in IDS], torch.int64)
    return dense, ids, torch.from_dlpack(columns[LABEL]).clone()


def stacked(columns: list[pa.Array], dtype: torch.dtype) -> Tensor:
    """[rows, columns]. Filling column by column takes half the time of torch.stack."""
    out = torch.empty((len(columns[0]), len(columns)), dtype=dtype)
    for index, column in enumerate(columns):
        out[:, index] = torch.from_dlpack(column)
    return out


SIDES = {
    "flambeau": lambda path: flambeau_loader(path, shuffle=False),
    "flambeau_shuffled": lambda path: flambeau_loader(path, shuffle=True),
    "iter_batches": iter_batches,
    "iter_large": iter_large,
    "dataset_large": dataset_large,
}


def main(side: str, path: str) -> None:
    started = time.perf_counter()
    rows, total = 0, 0.0
    for dense, ids, label in SIDES[side](path):
        total += dense.sum().item() + ids.sum().item() + label.sum().item()
        rows += len(label)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mb": peak, "total": total}))


if __name__ == "__main__":
    main(*sys.argv[1:])
