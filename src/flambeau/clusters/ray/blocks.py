"""Blocks of Ray Datasets: how their rows are split over agents, and how an agent reads them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray

from flambeau.clusters.ray.columns import common_schema, plain_columns, with_schema
from flambeau.errors import DataError

#: The number of blocks whose rows one task counts.
BLOCKS_PER_TASK = 256


@dataclass(frozen=True)
class BlockSlice:
    """Some rows of a block, which stays in Ray's object store until an agent fetches it."""

    block: Any
    offset: int
    rows: int


@dataclass(frozen=True)
class Part:
    """The rows of a dataset for one agent, and the schema that the rows of all agents have."""

    slices: Sequence[BlockSlice]
    schema: pa.Schema


def deal_out(dataset: Any, agents: int) -> list[Part]:
    """Return the rows of a dataset for each agent: in order, each row once, in equal numbers.

    If the rows cannot be divided equally, the first agents get one row more.
    """
    with in_order(dataset):
        blocks = dataset.to_arrow_refs()
    groups = [blocks[at : at + BLOCKS_PER_TASK] for at in range(0, len(blocks), BLOCKS_PER_TASK)]
    look = ray.remote(num_cpus=0)(_look_at)
    seen = ray.get([look.remote(*group) for group in groups])
    counts = [rows for each, _ in seen for rows in each]
    if not any(counts):
        raise DataError("the Ray Dataset has no rows")
    schema = common_schema(schema for _, schemas in seen for schema in schemas)
    return [
        Part([BlockSlice(blocks[number], offset, rows) for number, offset, rows in part], schema)
        for part in split_rows(counts, agents)
    ]


@contextmanager
def in_order(dataset: Any) -> Iterator[None]:
    """Make a dataset return its blocks in its own order, not that in which they finish.

    Every execution for a job must be inside this context, as Ray keeps the blocks of the first one.
    A resumed run needs the order: it continues at a row.
    """
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def split_rows(counts: Sequence[int], parts: int) -> list[list[tuple[int, int, int]]]:
    """Return, for each part, its slices of blocks: block number, first row, number of rows."""
    total, split, block, offset = sum(counts), [], 0, 0
    for part in range(parts):
        wanted = total // parts + (part < total % parts)
        taken = []
        while wanted:
            rows = min(wanted, counts[block] - offset)
            if rows:
                taken.append((block, offset, rows))
            wanted, offset = wanted - rows, offset + rows
            if offset == counts[block]:
                block, offset = block + 1, 0
        split.append(taken)
    return split


def _look_at(*blocks: pa.Table) -> tuple[list[int], list[pa.Schema]]:
    """Return the numbers of rows of blocks, and the distinct schemas of those that have any."""
    schemas = [plain_columns(block).schema for block in blocks if block.num_rows]
    return [block.num_rows for block in blocks], list(dict.fromkeys(schemas))


def batches_of(parts: Mapping[str, Part]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Fetch one block after the other; yield its batches, each with the name of its frame."""
    for name, part in parts.items():
        for each in part.slices:
            table = ray.get(each.block).slice(each.offset, each.rows)
            for batch in with_schema(plain_columns(table), part.schema).to_batches():
                yield name, batch
