"""Latent effects of ids and numbers, as hashes of seed, field and id."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import inlined, reproducible_kernel
from flambeau.kernels.mixing import mix

Array = np.ndarray[Any, Any]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
OTHER = np.uint64(0xC2B2AE3D27D4EB4F)
LANE = np.uint64(0xFFFF)
#: The id with this rank by frequency has half the effect that the most frequent one may have.
HALF_EFFECT = 100.0

#: Scales a 16-bit number around zero to a variance of 1.
_UNIT = np.sqrt(12.0) / 65_536
#: Ids after this one change the mean of a field's vectors only negligibly.
_COUNTED = 4_096


@inlined
def lane(bits: Any, number: Any) -> Any:
    """Return one of the four numbers in 64 bits, uniform with mean 0 and variance 1."""
    value = (bits >> np.uint64(16 * number)) & LANE
    return (np.float64(value) - 32_767.5) * _UNIT


@inlined
def effects(salt: Any, number: Any) -> Any:
    """Return 64 bits for an id: two lanes of main effects and two of its vector."""
    return mix(salt + np.uint64(number + 1) * GOLDEN)


@reproducible_kernel
def salts(seed: Any, fields: Any) -> Any:
    """Return the salts that distinguish the ids of one field from those of another [fields]."""
    result = np.empty(fields, np.uint64)
    for f in range(fields):
        result[f] = mix(mix(seed + OTHER) + np.uint64(f) * GOLDEN)
    return result


@reproducible_kernel
def dense_weights(seed: Any, dense: Any) -> Any:
    """Return the weights of the dense columns [dense]."""
    result = np.empty(dense, np.float64)
    for j in range(dense):
        result[j] = lane(mix(mix(seed ^ OTHER) + np.uint64(j) * GOLDEN), 0)
    return result


def centres(salts: Array, cardinality: Array) -> Array:
    """Return the mean vectors of the fields' ids [fields, 2], weighted by their frequency.

    Vectors are taken relative to them. Otherwise a random part of the interactions would be effects
    of single ids.
    """
    result = np.empty((len(salts), 2))
    for f, count in enumerate(cardinality):
        tail = np.arange(1, min(count, _COUNTED) + 2) ** -0.2
        shares = (tail[:-1] - tail[1:]) / (1.0 - (count + 1.0) ** -0.2)
        result[f] = _centre(salts[f], shares)
    return np.round(result, 9)


@reproducible_kernel
def _centre(salt: Any, shares: Any) -> Any:
    one = 0.0
    two = 0.0
    for k in range(shares.size):
        bits = effects(salt, k)
        weight = shares[k] * HALF_EFFECT / (HALF_EFFECT + k)
        one += weight * lane(bits, 2)
        two += weight * lane(bits, 3)
    return one, two
