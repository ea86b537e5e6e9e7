"""A random order of n rows that is computed, not stored."""

from dataclasses import dataclass
from typing import Any

import numpy as np

_ROUNDS = 6
_MIX = np.uint64(0x9E3779B97F4A7C15)

Positions = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Permutation:
    """A bijection of 0..n-1 keyed by (seed, stream), in constant memory.

    A Feistel network permutes the next power of four. It is applied again to values of n or more
    until they are in range, on average fewer than four times.
    """

    n: int
    seed: int
    stream: int

    def __call__(self, positions: Positions) -> Positions:
        """Return the rows at these positions of the random order."""
        half = max(1, (max(1, self.n - 1).bit_length() + 1) // 2)
        keys = np.random.SeedSequence([self.seed, self.stream]).generate_state(_ROUNDS, np.uint64)
        rows: Any = self._feistel(positions.astype(np.uint64), half, keys)
        outside = np.flatnonzero(rows >= self.n)
        while outside.size:
            rows[outside] = self._feistel(rows[outside], half, keys)
            outside = outside[rows[outside] >= self.n]
        result: Positions = rows.astype(np.int64)
        return result

    @staticmethod
    def _feistel(values: Any, half: int, keys: Any) -> Any:
        shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
        left, right = values >> shift, values & mask
        for key in keys:
            mixed = (right + key) * _MIX
            mixed ^= mixed >> np.uint64(29)
            mixed *= _MIX
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << shift) | right
