"""Raw rows, a pipeline and a model for tests of features; importable by the workers of engines."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

import flambeau.features as ft

SPLIT = ft.by_time("time", valid=0.2)
FILES = {"pipeline", "prepared.json", "preparation.json", "statistics.json"}
COLUMNS = ["user", "item", "slot"]


def rows(count: int = 600) -> pa.Table:
    """Return rows with an `id`, missing values, unicode, lists and negative numbers."""
    rng = np.random.default_rng(0)
    users = [None if x % 17 == 0 else f"ü{x}" for x in rng.zipf(1.5, count) % 60]
    tags = [None if x > 3 else ["a", "", "b"][:x] for x in rng.integers(0, 5, count)]
    return pa.table(
        {
            "id": np.arange(count),
            "user": users,
            "item": rng.integers(-9, 9, count) * (1 << 59),
            "price": [None if x > 1 else float(x) for x in rng.normal(size=count)],
            "tags": tags,
            "time": rng.integers(0, 300, count),
            "click": rng.integers(0, 2, count),
        }
    )


def pipeline() -> ft.Pipeline:
    """Return a pipeline with every kind of statistics for which the order of rows is nothing."""
    return ft.Pipeline(
        [
            ft.FillMissing("price", strategy="median"),
            ft.Normalize("price"),
            ft.Bucketize("time", quantiles=5, out="slot"),
            ft.Categorify([*COLUMNS, "tags"], min_count=2),
            ft.CountEncode("user", out="often"),
        ]
    )


def by_id(batches: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Return the rows of tables in the order of their ids."""
    return pa.concat_tables(batches).sort_by("id").to_pylist()


def prepared(folder: Path) -> dict[str, Any]:
    """Return what a prepared folder holds, and the digest of its pipeline."""
    found: dict[str, Any] = {
        name: by_id([pq.read_table(folder / name)]) for name in ("train", "valid")
    }
    assert {path.name for path in folder.iterdir()} == FILES | found.keys()
    return {**found, "pipeline": ft.Pipeline.load(folder / "pipeline").digest}


class Clicks(nn.Module):
    """A number for each id."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weights = nn.Embedding(100, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.weights(ids).sum(dim=(1, 2))
        return result


FIT: dict[str, Any] = {
    "inputs": {"ids": COLUMNS},
    "label": "click",
    "loss": "bce",
    "metrics": ["auc"],
    "batch_size": 50,
    "observe": {"progress": "none"},
}
