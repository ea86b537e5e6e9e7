"""Fields of generated clicks, and the weight of each part of the logit.

    logit(click) = bias + main + pairs + dense

  main   the effects of a row's ids, one each; in every third field they turn slowly with the day
  pairs  for each group of fields, the dot product of its ids' vectors for each pair of fields;
         the vectors of some fields rotate with the day, against those of the others
  dense  a weight times log2(1 + value), for each dense column

Effects and vectors are hashes of seed, field and id: nothing is stored, however many ids exist.
Missing values have no effect. Do not change any of the constants: results on generated clicks are
compared over time.
"""

from dataclasses import dataclass

import numpy as np

from flambeau.data.generated.effects import Array, centres, dense_weights, salts
from flambeau.data.generated.settings import ClickLog

#: Minimum number of ids of a field, if there are enough for all.
FEWEST_IDS = 4
#: A field with fewer ids has the same ones every day.
FEWEST_IDS_TO_RENEW = 50
FIELDS_OF_A_GROUP = 3
MOST_GROUPS = 2
MISSING_IDS = (0.0, 0.02, 0.0, 0.1, 0.0, 0.2, 0.0, 0.05)
MISSING_DENSE = (0.4, 0.0, 0.2, 0.1)
#: Radians per day.
MAIN_TURNS = 0.04
VECTORS_TURN = (0.0, 0.05, -0.05)
_GOLDEN_32 = 0x9E3779B1


@dataclass(frozen=True)
class World:
    """Parameters of each field [fields] and dense column [dense] for drawing rows.

    `group` is -1 for fields without interactions. `reach` is the part of a Pareto distribution that
    the field's ids cover. `dense_octaves` is log2 of a dense column's largest value. Shares of
    missing values are in units of 1/65,536.
    """

    seed: np.uint64
    salts: Array
    centres: Array
    cardinality: Array
    reach: Array
    missing: Array
    renewed: Array
    group: Array
    main_turn: Array
    vector_turn: Array
    dense_weights: Array
    dense_octaves: Array
    dense_missing: Array
    dense_shift: Array

    @property
    def groups(self) -> int:
        """Number of groups of fields that interact."""
        return int(self.group.max()) + 1


def make_world(log: ClickLog) -> World:
    """Make the world of a click log, which depends only on its settings."""
    sizes = cardinalities(log.fields, log.ids)
    group = groups(sizes)
    seed = np.uint64(log.seed)
    salted = salts(seed, log.fields)
    numbers, dense = np.arange(log.fields), np.arange(log.dense)
    return World(
        seed=seed,
        salts=salted,
        centres=centres(salted, sizes),
        cardinality=sizes,
        reach=np.round(1.0 - (sizes + 1.0) ** -0.2, 12),
        missing=_shares(MISSING_IDS, log.fields),
        renewed=sizes >= FEWEST_IDS_TO_RENEW,
        group=group,
        main_turn=np.where(numbers % 3 == 0, MAIN_TURNS, 0.0),
        vector_turn=_vector_turns(group),
        dense_weights=dense_weights(seed, log.dense),
        dense_octaves=3.0 + dense * 5 % 12,
        dense_missing=_shares(MISSING_DENSE, log.dense),
        # As in Criteo's logs, the minimum of the second column is -2.
        dense_shift=np.where(dense == 1, 2, 0),
    )


def _shares(cycle: tuple[float, ...], count: int) -> Array:
    return np.array([round(cycle[k % len(cycle)] * 65_536) for k in range(count)], np.int64)


def cardinalities(fields: int, ids: int) -> Array:
    """Return the numbers of ids [fields], from very few to a large part of all, in equal ratios."""
    fewest = min(FEWEST_IDS, ids // fields)
    steps = np.arange(fields)
    low, high = 1.0, (ids / fewest) ** (1 / max(1, fields - 1))
    for _ in range(100):
        factor = (low + high) / 2
        if np.floor(fewest * factor**steps).sum() > ids:
            high = factor
        else:
            low = factor
    sizes = np.floor(fewest * low**steps).astype(np.int64)
    sizes[-1] += ids - sizes.sum()
    # Small and large fields alternate, in an order that is the same for every seed.
    turns = np.argsort(np.arange(fields) * _GOLDEN_32 % (1 << 32))
    result = np.empty(fields, np.int64)
    result[turns] = sizes
    return result


def groups(sizes: Array) -> Array:
    """Return the group of each field [fields], or -1: groups have fields with few ids."""
    count = min(MOST_GROUPS, max(1, len(sizes) // 8))
    taken = min(len(sizes), count * FIELDS_OF_A_GROUP)
    first = (len(sizes) - taken) // 6
    result = np.full(len(sizes), -1, np.int64)
    chosen = np.argsort(sizes, kind="stable")[first : first + taken]
    result[chosen] = np.arange(taken) % count
    return result


def _vector_turns(group: Array) -> Array:
    """Return the rotation of vectors [fields] per day, which must differ within a group."""
    result = np.zeros(len(group))
    for number in range(group.max() + 1):
        members = np.flatnonzero(group == number)
        result[members] = [VECTORS_TURN[k % len(VECTORS_TURN)] for k in range(len(members))]
    return result
