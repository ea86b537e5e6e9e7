"""Comparing two things on one machine: interleaved pairs, and one line of JSON."""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pairs:
    """What both sides measured, pair by pair."""

    ours: list[float]
    peer: list[float]

    def ratios(self, *, higher_is_better: bool) -> list[float]:
        """For each pair how much better we are: above 1 is better."""
        both = zip(self.ours, self.peer, strict=True)
        return [a / b if higher_is_better else b / a for a, b in both]


def interleave(ours: Callable[[], float], peer: Callable[[], float], pairs: int) -> Pairs:
    """Measure both sides `pairs` times; who goes first alternates, so that drift cancels."""
    result = Pairs([], [])
    for number in range(pairs):
        turns = [(ours, result.ours), (peer, result.peer)]
        for measure, values in turns if number % 2 == 0 else reversed(turns):
            values.append(measure())
    return result


def report(
    benchmark: str, pairs: Pairs, unit: str, *, higher_is_better: bool = True, **more: Any
) -> None:
    """Print the medians, and the median ratio with its 5th and 95th percentile."""
    ratios = pairs.ratios(higher_is_better=higher_is_better)
    several = ratios if len(ratios) > 1 else ratios * 2  # one has no quantiles
    low, *_, high = statistics.quantiles(several, n=20, method="inclusive")
    tell(
        benchmark,
        ours=statistics.median(pairs.ours),
        peer=statistics.median(pairs.peer),
        ratio=statistics.median(ratios),
        low=low,
        high=high,
        unit=unit,
        pairs=len(ratios),
        **more,
    )


def tell(benchmark: str, **values: Any) -> None:
    """Print one line of JSON."""
    rounded = {name: _rounded(value) for name, value in values.items()}
    print(json.dumps({"benchmark": benchmark, **rounded}), flush=True)


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
