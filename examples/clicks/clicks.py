"""Clicks made up by chance, and a model that learns who likes what."""

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.embeddings import MinCount, SparseEmbedding, TableSpec

Columns = dict[str, np.ndarray]

USERS, ITEMS, SEEN_BEFORE = 2_000, 1_000, 5
TRAIN_ROWS, VALID_ROWS = 40_000, 10_000


def train() -> Columns:
    """40,000 rows: numbers `x`, ids `user`, `item` and `history` (five items), and `label`."""
    return _rows(TRAIN_ROWS, seed=1)


def valid() -> Columns:
    """10,000 more, of the same users and items."""
    return _rows(VALID_ROWS, seed=2)


def _rows(count: int, seed: int) -> Columns:
    world, chance = np.random.default_rng(0), np.random.default_rng(seed)
    # Ids need not be numbers from 0: hashes of names do as well.
    user_ids, item_ids = (world.integers(-(2**62), 2**62, size=n) for n in (USERS, ITEMS))
    taste, appeal = world.normal(size=USERS), world.normal(size=ITEMS)
    user = chance.integers(0, USERS, size=count)
    item = chance.zipf(1.3, size=count) % ITEMS
    x = chance.normal(size=(count, 4)).astype(np.float32)
    score = taste[user] + 2 * appeal[item] + x[:, 0]
    clicked = chance.random(count) < 1 / (1 + np.exp(-score))
    return {
        "x": x,
        "user": user_ids[user],
        "item": item_ids[item],
        "history": item_ids[chance.zipf(1.3, size=(count, SEEN_BEFORE)) % ITEMS],
        "label": clicked.astype(np.float32),
    }


class ClickModel(nn.Module):
    """A user, an item and the items seen before, looked up in two tables; an MLP on top."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        users = TableSpec("user", dim)
        items = TableSpec("item", dim, admission=MinCount(2))
        self.user = SparseEmbedding(users, prefetch="user")
        self.item = SparseEmbedding(items, prefetch="item")
        self.history = SparseEmbedding(items, "mean", prefetch="history")
        self.layers = nn.Sequential(nn.Linear(4 + 3 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor, user: Tensor, item: Tensor, history: Tensor) -> Tensor:
        """The logit of a click. [rows]"""
        rows = [self.user(user), self.item(item), self.history(history)]
        return self.layers(torch.cat([x, *rows], dim=1)).squeeze(1)
