"""Small networks and DataFrames for tests of Spark ML; importable by Spark's workers."""

from typing import Any

import numpy as np
import torch
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from torch import Tensor, nn

from flambeau.data.jagged import Jagged
from flambeau.embeddings import SparseEmbedding, TableSpec

QUIET = {"observe": {"progress": "none", "tensorboard": False}}


class Net(nn.Module):
    def __init__(self, inputs: int = 4, hidden: int = 8, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


class Image(nn.Module):
    """Takes rows of [1, 2, 2], and gives them back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        assert image.shape[1:] == (1, 2, 2)
        result: Tensor = self.layer(image)
        return result


class Tasks(nn.Module):
    """Two tasks, from two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.click, self.price = nn.Linear(2, 1), nn.Linear(3, 1)

    def forward(self, few: Tensor, many: Tensor) -> dict[str, Tensor]:
        return {"click": self.click(few)[:, 0], "price": self.price(many)}


class SparseLine(nn.Module):
    """A linear model of sparse rows, which must not have been densified."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(10))

    def forward(self, features: Jagged) -> Tensor:
        assert isinstance(features, Jagged)
        assert features.values is not None
        found = self.weight[features.ids] * features.values
        return torch.zeros(len(features)).index_add(0, features.rows, found)


class Clicks(nn.Module):
    """Ids in a table, beside numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.items = SparseEmbedding(TableSpec("item", 4), "sum")
        self.last = nn.Linear(6, 1)

    def forward(self, numbers: Tensor, item: Tensor) -> Tensor:
        result: Tensor = self.last(torch.cat([numbers, self.items(item[:, None])], dim=1))
        return result[:, 0]


def numbers(rows: int = 64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features [rows, 4] and a class of three for each."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).round(3)
    return x, (x @ rng.normal(size=(4, 3))).argmax(axis=1)


def vectors(spark: SparkSession, rows: int = 64) -> DataFrame:
    """`features` (vectors, every third one sparse), `label`, `a` to `d`, and an `id`."""
    x, y = numbers(rows)
    data: list[Any] = []
    for number, (row, label) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        vector = Vectors.sparse(4, range(4), row) if number % 3 == 0 else Vectors.dense(row)
        data.append((number, vector, float(label), *row))
    return spark.createDataFrame(data, ["id", "features", "label", *"abcd"])
