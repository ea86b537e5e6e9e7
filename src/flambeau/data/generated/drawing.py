"""Drawing of rows. Each follows from the seed and its number, so any part can be drawn alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from flambeau.data.generated.effects import GOLDEN, HALF_EFFECT, LANE, OTHER, Array, effects, lane
from flambeau.data.generated.world import World
from flambeau.kernels.compiled import inlined, reproducible_kernel
from flambeau.kernels.mixing import mix

#: Parts of a row's logits: main effects, pairs, dense, and the conversion's own main effects.
PARTS = 4
MISSING_NUMBER = np.int32(-(1 << 31))
#: Number of days after which every id of a renewed field has been replaced by another.
DAYS_TO_RENEW = 50

_TO_48_BITS = 1.0 / (1 << 48)
_TO_53_BITS = 1.0 / (1 << 53)


@dataclass(frozen=True)
class DrawnRows:
    """Consecutive rows, and the values from which their labels are drawn.

    `codes` [rows, fields] are the ids as 32 bits where `present`; `numbers` [rows, dense] are
    `MISSING_NUMBER` where missing; `parts` is [rows, PARTS]; `chances` [rows, 2] are in [0, 1).
    """

    codes: Array
    present: Array
    numbers: Array
    parts: Array
    chances: Array


def draw(world: World, day: int, first: int, count: int, stream: int = 0) -> DrawnRows:
    """Draw rows `first`, `first + 1`, ... of a stream, as they are on that day."""
    fields, dense = len(world.cardinality), len(world.dense_octaves)
    rows = DrawnRows(
        codes=np.empty((count, fields), np.uint32),
        present=np.empty((count, fields), np.bool_),
        numbers=np.empty((count, dense), np.int32),
        parts=np.zeros((count, PARTS)),
        chances=np.empty((count, 2)),
    )
    state = np.uint64(_state(world.seed, np.uint64(stream), np.uint64(first)))
    _draw_ids(
        state,
        day,
        (world.cardinality, world.reach, world.missing, world.renewed, world.group),
        world.salts,
        world.centres,
        _turns(world, day),
        np.zeros((world.groups, 3)),
        rows.codes,
        rows.present,
        rows.parts,
    )
    columns = (world.dense_octaves, world.dense_missing, world.dense_shift)
    _draw_numbers(state, columns, world.dense_weights, rows.numbers, rows.parts)
    _draw_chances(state, rows.chances)
    return rows


def _turns(world: World, day: int) -> Array:
    """Return cosine and sine of how far main effects and vectors have turned [fields, 4]."""
    main, vector = world.main_turn * day, world.vector_turn * day
    turns = np.stack([np.cos(main), np.sin(main), np.cos(vector), np.sin(vector)], axis=1)
    return np.round(turns, 9)


@inlined
def _zipf(chance: Any, reach: Any, count: Any) -> Any:
    """Return a number below `count`, where k has a probability of about (k + 1) ** -1.2.

    It is the integer part of the Pareto distribution whose tail is x ** -0.2. The inverse of a
    fifth root is an integer power, which every machine computes with the same result.
    """
    root = 1.0 / (1.0 - chance * reach)
    square = root * root
    return min(int(square * square * root) - 1, count - 1)


@inlined
def _two_to(exponent: Any) -> Any:
    """Return approximately 2 ** exponent, with the same bits on every machine."""
    whole = int(exponent)
    part = exponent - whole
    return (1 << whole) * (1.0 + part * (0.6951 + part * (0.2276 + part * 0.0773)))


@inlined
def _octave(value: Any) -> Any:
    """Return approximately log2 of a positive integer: exact for powers of two, linear between."""
    whole = 0
    while value >> (whole + 1):
        whole += 1
    return whole + (value / (1 << whole) - 1.0)


@inlined
def _code(number: Any, salt: Any) -> Any:
    """Return 32 bits that no other id of the field has: every operation is invertible."""
    bits = np.uint32(number) ^ np.uint32(salt)
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))


@reproducible_kernel
def _state(seed: Any, stream: Any, first: Any) -> Any:
    return mix(mix(seed + GOLDEN) ^ (stream * OTHER)) + first * GOLDEN


@reproducible_kernel
def _draw_ids(
    state: Any,
    day: Any,
    world: Any,
    salts: Any,
    centres: Any,
    turns: Any,
    sums: Any,
    codes: Any,
    present: Any,
    parts: Any,
) -> None:
    cardinality, reach, missing, renewed, group = world
    for i in range(codes.shape[0]):
        row = mix(state + np.uint64(i) * GOLDEN)
        sums[:] = 0.0
        main = 0.0
        other = 0.0
        for f in range(codes.shape[1]):
            bits = mix(row + np.uint64(f + 3) * OTHER)
            there = np.int64(bits & LANE) >= missing[f]
            present[i, f] = there
            codes[i, f] = 0
            if not there:
                continue
            number = _zipf((bits >> np.uint64(16)) * _TO_48_BITS, reach[f], cardinality[f])
            weight = HALF_EFFECT / (HALF_EFFECT + number)
            if renewed[f]:
                phase = mix(salts[f] ^ np.uint64(number)) >> np.uint64(33)
                age = day + np.int64(phase) % DAYS_TO_RENEW
                number += age // DAYS_TO_RENEW * cardinality[f]
            codes[i, f] = _code(number, salts[f])
            latent = effects(salts[f], number)
            turned = lane(latent, 0) * turns[f, 0] + lane(latent, 1) * turns[f, 1]
            main += weight * turned
            other += weight * lane(mix(latent + OTHER), 0)
            if group[f] >= 0:
                one = weight * lane(latent, 2) - centres[f, 0]
                two = weight * lane(latent, 3) - centres[f, 1]
                sums[group[f], 0] += one * turns[f, 2] - two * turns[f, 3]
                sums[group[f], 1] += one * turns[f, 3] + two * turns[f, 2]
                sums[group[f], 2] += one * one + two * two
        # All pairs at once: the square of the sum, minus the squares.
        for g in range(sums.shape[0]):
            square = sums[g, 0] * sums[g, 0] + sums[g, 1] * sums[g, 1]
            parts[i, 1] += (square - sums[g, 2]) / 2
        parts[i, 0] = main
        parts[i, 3] = other


@reproducible_kernel
def _draw_numbers(state: Any, columns: Any, weights: Any, numbers: Any, parts: Any) -> None:
    octaves, missing, shift = columns
    for i in range(numbers.shape[0]):
        row = mix(state + np.uint64(i) * GOLDEN)
        effect = 0.0
        for j in range(numbers.shape[1]):
            bits = mix(row ^ (np.uint64(j + 3) * GOLDEN))
            if np.int64(bits & LANE) < missing[j]:
                numbers[i, j] = MISSING_NUMBER
                continue
            value = int(_two_to((bits >> np.uint64(16)) * _TO_48_BITS * octaves[j]))
            value -= 1 + shift[j]
            numbers[i, j] = value
            effect += weights[j] * _octave(max(value, 0) + 1) / octaves[j]
        parts[i, 2] = effect


@reproducible_kernel
def _draw_chances(state: Any, chances: Any) -> None:
    for i in range(chances.shape[0]):
        row = mix(state + np.uint64(i) * GOLDEN)
        for k in range(2):
            bits = mix(row + np.uint64(k + 1) * OTHER)
            chances[i, k] = (bits >> np.uint64(11)) * _TO_53_BITS
