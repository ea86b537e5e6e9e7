"""Retrieval metrics: how well vectors find the right items among all items."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flambeau.data.jagged import Jagged, from_lists, from_rows
from flambeau.errors import DataError

#: Number of scores in memory at once.
_SCORES = 1 << 24
_QUERIES = 1 << 10

Truth = Tensor | Jagged | Sequence[Sequence[int]]


def retrieval_metrics(
    queries: Tensor,
    items: Tensor,
    truth: Truth,
    k: int | Sequence[int] = 10,
    *,
    seen: Truth | None = None,
) -> dict[str, float]:
    """Return `recall@k` and `ndcg@k` of queries [n, d] that rank items [m, d] by inner product.

    `truth` gives the right items for each query, by their positions 0 to m - 1: one each ([n]), a
    `Jagged` or lists. Queries without any are left out. `seen` items (in the same form) are removed
    from the ranking of their query, except those that are right. All items are compared, in pieces:
    memory is bounded whatever n and m are. Use it with vectors of `user_vectors` and
    `item_vectors`.
    """
    _check_vectors(queries, items)
    right = _places(truth, "truth", queries, items)
    known = None if seen is None else _places(seen, "seen", queries, items)
    ks = [k] if isinstance(k, int) else list(k)
    if not ks or min(ks) < 1:
        raise DataError(f"k={k}: give a number of places, or several, each at least 1")
    depth = min(max(ks), len(items))
    sums = torch.zeros(len(ks), 2, dtype=torch.float64)
    asked = int((right.lengths > 0).sum())
    for start in range(0, len(queries), _QUERIES):
        piece = right.slice(start, start + _QUERIES)
        hidden = None if known is None else _without(known.slice(start, start + _QUERIES), piece)
        found = _nearest(queries[start : start + _QUERIES], items, depth, hidden)
        hits = _hits(found, piece, len(items))
        sums += torch.stack([_recall_and_ndcg(hits, piece.lengths, each) for each in ks])
    means = (sums / asked).tolist() if asked else [[torch.nan, torch.nan]] * len(ks)
    return {
        f"{name}@{each}": value
        for each, pair in zip(ks, means, strict=True)
        for name, value in zip(("recall", "ndcg"), pair, strict=True)
    }


def _check_vectors(queries: Tensor, items: Tensor) -> None:
    if queries.dim() != 2 or items.dim() != 2 or queries.shape[1] != items.shape[1]:
        raise DataError(
            f"queries of {list(queries.shape)} and items of {list(items.shape)}: give vectors "
            "[n, d] and [m, d] of the same length"
        )


def _places(given: Truth, name: str, queries: Tensor, items: Tensor) -> Jagged:
    """Return the items that `given` lists for each query, each once."""
    if isinstance(given, Tensor):
        given = from_rows(given)
    bags = given if isinstance(given, Jagged) else from_lists(given)
    if len(bags) != len(queries):
        raise DataError(f"{name} for {len(bags)} queries, and there are {len(queries)}")
    places = bags.ids
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(items):
        raise DataError(
            f"{name} names item {int(places.max())} (or below 0: {int(places.min())}); items are "
            f"given by their places, 0 to {len(items) - 1}"
        )
    return _distinct(bags, len(items))


def _distinct(bags: Jagged, items: int) -> Jagged:
    """Return the bags with each item once."""
    pairs = torch.unique(bags.rows * items + bags.ids)
    lengths = torch.bincount(pairs // items, minlength=len(bags))
    return Jagged(pairs % items, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))


def _without(seen: Jagged, right: Jagged) -> tuple[Tensor, Tensor]:
    """Return the queries and items that are seen and not right, by item. [pairs], [pairs]"""
    rows, places = seen.rows, seen.ids
    size = 1 + int(torch.cat([places, right.ids, places.new_zeros(1)]).max())
    hidden = ~torch.isin(rows * size + places, right.rows * size + right.ids)
    places, order = places[hidden].sort()
    return rows[hidden][order], places


def _nearest(
    queries: Tensor, items: Tensor, k: int, hidden: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Return the positions of the `k` items with the highest products for each query. [n, k]

    The pairs of queries and items in `hidden` (sorted by item) come last.
    """
    best = queries.new_empty(len(queries), 0)
    places = torch.empty(len(queries), 0, dtype=torch.int64)
    at_once = max(k, _SCORES // max(1, len(queries)))
    for start in range(0, len(items), at_once):
        scores = queries @ items[start : start + at_once].T
        if hidden is not None:
            rows, ids = hidden
            first, last = torch.searchsorted(ids, torch.tensor([start, start + at_once])).tolist()
            scores[rows[first:last], ids[first:last] - start] = -torch.inf
        numbers = torch.arange(start, start + scores.shape[1]).expand_as(scores)
        best, order = torch.cat([best, scores], 1).topk(min(k, best.shape[1] + scores.shape[1]), 1)
        places = torch.cat([places, numbers], 1).gather(1, order)
    return places


def _hits(found: Tensor, right: Jagged, items: int) -> Tensor:
    """Return which of the positions found [n, k] are right. [n, k]"""
    wanted = right.rows * items + right.ids
    given = torch.arange(len(found))[:, None] * items + found
    return torch.isin(given, wanted)


def _recall_and_ndcg(hits: Tensor, right: Tensor, k: int) -> Tensor:
    """Return the sums of recall and NDCG at `k` over queries with right items. [2]"""
    asked = right > 0
    hits, right = hits[asked, :k].double(), right[asked]
    discounts = torch.arange(2, k + 2, dtype=torch.float64).log2().reciprocal()
    recall = hits.sum(1) / right
    best = discounts.cumsum(0)[right.clamp(max=k) - 1]
    ndcg = (hits * discounts[: hits.shape[1]]).sum(1) / best
    return torch.stack([recall.sum(), ndcg.sum()])
