"""The most frequent keys of a column, with counts that are exact or low by a known number."""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flambeau.features.summaries import summary_kernels

Array = np.ndarray[Any, Any]

#: Limit on the keys that are held. With at most this many distinct keys, all counts are exact.
MOST = 512
_SLOTS = 4 * MOST


@final
@dataclass(frozen=True)
class FrequentKeys:
    """Keys in no order, with counts that are low by at most `slack`, and their texts, if any.

    `slack` is below 2 / `MOST` of the number of keys that were counted; all keys that are more
    frequent than `slack` are included.
    """

    keys: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    texts: pa.Array | None = None
    slack: int = 0

    def merge(self, other: "FrequentKeys") -> "FrequentKeys":
        """Return the merged keys and counts of both."""
        keys = np.concatenate([self.keys, other.keys])
        distinct, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, places, np.concatenate([self.counts, other.counts]))
        texts = _both(self.texts, other.texts)
        slack = self.slack + other.slack
        if len(distinct) > MOST:
            amount = int(np.partition(counts, -MOST - 1)[-MOST - 1])
            kept = counts > amount
            distinct, firsts, counts = distinct[kept], firsts[kept], counts[kept] - amount
            slack += amount
        return FrequentKeys(
            distinct, counts, None if texts is None else texts.take(pa.array(firsts)), slack
        )

    @property
    def is_complete(self) -> bool:
        """Return whether no key was left out, so that all counts are exact."""
        return self.slack == 0

    def first(self, count: int) -> Array:
        """Return the places of the most frequent keys; ties are in the order of keys or texts."""
        order: Array = np.lexsort((self._order(), -self.counts))[:count]
        return order

    def _order(self) -> Array:
        if self.texts is None:
            return self.keys
        ranks = np.empty(len(self.keys), np.int64)
        ranks[pc.sort_indices(self.texts)] = np.arange(len(self.keys))
        return ranks


def _both(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    found = [texts for texts in (one, other) if texts is not None]
    return pa.concat_arrays(found) if found else None


@final
class KeyCounter:
    """A counter of keys in a small table."""

    def __init__(self) -> None:
        self._held = np.zeros(_SLOTS, np.int64)
        self._counts = np.zeros(_SLOTS, np.int64)
        self._places = np.zeros(_SLOTS, np.int64)
        self._state = np.zeros(2, np.int64)
        self._texts: pa.Array | None = None

    def add(self, keys: Array, registers: Array, texts: pa.Array | None) -> None:
        """Add keys, also to the registers of `distinct_count`; `texts` are their values."""
        table = (self._held, self._counts, self._places, self._state)
        summary_kernels.add_keys(keys, registers, *table, MOST)
        if texts is not None:
            self._keep_texts(texts)

    def _keep_texts(self, texts: pa.Array) -> None:
        """Keep the texts of the keys in the table, and no others."""
        used = np.flatnonzero(self._counts)
        places = self._places[used]
        new = places < 0
        if not new.any() and self._texts is not None:
            return
        kept = [texts.take(pa.array(-places[new] - 2)).cast(pa.large_binary())]
        if self._texts is not None:
            kept.append(self._texts.take(pa.array(places[~new])))
        order = np.concatenate([used[new], used[~new]])
        self._places[order] = np.arange(len(order))
        self._texts = pa.concat_arrays(kept)

    def found(self) -> FrequentKeys:
        """Return the keys in the table."""
        used = np.flatnonzero(self._counts)
        texts = self._texts
        if texts is not None:
            texts = texts.take(pa.array(self._places[used]))
        return FrequentKeys(self._held[used], self._counts[used], texts, int(self._state[1]))
