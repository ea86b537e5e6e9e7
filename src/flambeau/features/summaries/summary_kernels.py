"""Compiled kernels for moments, distinct values and frequent values of a column."""

from typing import Any

import numpy as np

from flambeau.kernels.compiled import inlined, kernel, reproducible_kernel
from flambeau.kernels.mixing import mix

_SEED = np.uint64(0x9AE16A3B2F90404F)
_REST_BITS = 52
_REST = np.uint64((1 << _REST_BITS) - 1)
_TOP = np.uint64(_REST_BITS)
#: Counts up to this number are subtracted without sorting all counts.
_SMALL = 4


@reproducible_kernel
def add_moments(values: Any, counts: Any, bounds: Any, moments: Any) -> None:
    """Add numbers to `counts` (finite, NaN, infinite, zero), `bounds` and `moments`.

    `bounds` are the least and the greatest finite number; `moments` their mean and the sum of
    squared differences from it.
    """
    others = 0
    for i in range(values.size):
        others += values[i] - values[i] != 0
    if others > 0:
        values = _only_finite(values, values.size - others, counts)
    if values.size == 0:
        return
    if counts[0] == 0:
        bounds[0] = bounds[1] = values[0]
    _extend(values, counts, bounds)
    mean = _total(values) / values.size
    before, difference = counts[0], mean - moments[0]
    counts[0] += values.size
    share = values.size / counts[0]
    moments[0] += difference * share
    moments[1] += _squares(values, mean) + difference * difference * (before * share)


@reproducible_kernel
def _only_finite(values: Any, size: int, counts: Any) -> Any:
    """Return the finite numbers, and count the others."""
    finite, found = np.empty(size, values.dtype), 0
    for i in range(values.size):
        value = values[i]
        if value != value:
            counts[1] += 1
        elif value - value != 0:
            counts[2] += 1
        else:
            finite[found] = value
            found += 1
    return finite


@reproducible_kernel
def _extend(values: Any, counts: Any, bounds: Any) -> None:
    low, high, zeros = bounds[0], bounds[1], 0
    for i in range(values.size):
        value = values[i]
        low = value if value < low else low
        high = value if value > high else high
        zeros += value == 0
    bounds[0], bounds[1] = low, high
    counts[3] += zeros


# Each addition waits for the previous one: four sums at a time are four times as fast.


@reproducible_kernel
def _total(values: Any) -> Any:
    first = second = third = fourth = 0.0
    whole = values.size // 4 * 4
    for i in range(0, whole, 4):
        first += values[i]
        second += values[i + 1]
        third += values[i + 2]
        fourth += values[i + 3]
    for i in range(whole, values.size):
        first += values[i]
    return (first + second) + (third + fourth)


@reproducible_kernel
def _squares(values: Any, mean: Any) -> Any:
    first = second = third = fourth = 0.0
    whole = values.size // 4 * 4
    for i in range(0, whole, 4):
        first += (values[i] - mean) * (values[i] - mean)
        second += (values[i + 1] - mean) * (values[i + 1] - mean)
        third += (values[i + 2] - mean) * (values[i + 2] - mean)
        fourth += (values[i + 3] - mean) * (values[i + 3] - mean)
    for i in range(whole, values.size):
        first += (values[i] - mean) * (values[i] - mean)
    return (first + second) + (third + fourth)


@kernel
def count_low(values: Any, counts: Any) -> None:
    """Count the numbers that are below the size of `counts`, none of which is negative."""
    for i in range(values.size):
        if values[i] < counts.size:
            counts[values[i]] += 1


@inlined
def _register(bits: Any, registers: Any) -> Any:
    """Record the leading zeros of a hash in the register that its first bits select."""
    place = np.int64(bits >> _TOP)
    rest = bits & _REST
    held = registers[place]
    if held <= _REST_BITS and (rest >> np.uint64(_REST_BITS - held)) == 0:
        while held <= _REST_BITS and (rest >> np.uint64(_REST_BITS - held)) == 0:
            held += 1
        registers[place] = held


@kernel
def add_distinct(keys: Any, registers: Any) -> None:
    """Add keys to registers that estimate the number of distinct keys."""
    for i in range(keys.size):
        _register(mix(np.uint64(keys[i]) ^ _SEED), registers)


@kernel
def add_keys(
    keys: Any, registers: Any, held: Any, counts: Any, places: Any, state: Any, most: Any
) -> None:
    """Add keys to the registers, and to a table of at most `most` keys with their counts.

    A key that is new in the table gets the place -(row + 2). Once the table is full, enough is
    subtracted from all counts to remove half of the keys; `state` is the number of keys in the
    table, and the total that was subtracted.
    """
    mask = np.uint64(held.size - 1)
    for i in range(keys.size):
        bits = mix(np.uint64(keys[i]) ^ _SEED)
        _register(bits, registers)
        slot = _slot_of(keys[i], bits & mask, held, counts)
        if counts[slot] > 0:
            counts[slot] += 1
            continue
        if state[0] == most:
            state[1] += _subtract(held, counts, places, state)
            slot = _slot_of(keys[i], bits & mask, held, counts)
        held[slot] = keys[i]
        counts[slot] = 1
        places[slot] = -(i + 2)
        state[0] += 1


@inlined
def _slot_of(key: Any, first: Any, held: Any, counts: Any) -> Any:
    """Return the slot of a key, or the empty one where it belongs."""
    slot = np.int64(first)
    while counts[slot] > 0 and held[slot] != key:
        slot = (slot + 1) & (held.size - 1)
    return slot


@kernel
def _subtract(held: Any, counts: Any, places: Any, state: Any) -> int:
    """Subtract about the median of the counts, and remove the keys whose counts drop to 0."""
    amount = _median(counts, state[0])
    kept = np.empty((held.size, 3), np.int64)
    size = 0
    for slot in range(held.size):
        if counts[slot] > amount:
            kept[size, 0], kept[size, 1], kept[size, 2] = held[slot], counts[slot], places[slot]
            size += 1
        counts[slot] = 0
    mask = np.uint64(held.size - 1)
    for i in range(size):
        key = kept[i, 0]
        slot = _slot_of(key, mix(np.uint64(key) ^ _SEED) & mask, held, counts)
        held[slot], counts[slot], places[slot] = key, kept[i, 1] - amount, kept[i, 2]
    state[0] = size
    return amount


@kernel
def _median(counts: Any, used: int) -> int:
    """Return a number that at least half of the counts do not exceed."""
    for amount in range(1, _SMALL + 1):
        above = 0
        for slot in range(counts.size):
            above += counts[slot] > amount
        if 2 * above <= used:
            return amount
    middle: int = np.sort(counts)[counts.size - used + (used - 1) // 2]
    return middle
