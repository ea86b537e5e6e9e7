"""True probabilities of click and conversion."""

from dataclasses import dataclass

import numpy as np

from flambeau.data.generated.drawing import draw
from flambeau.data.generated.effects import Array
from flambeau.data.generated.world import World

#: Standard deviations of the parts of the click's logit.
MAIN, PAIRS, DENSE = 1.2, 0.6, 0.45
#: Standard deviation of the conversion's own part, and its share of the click's parts.
CONVERSION_MAIN, CONVERSION_SHARE = 0.8, 0.5
#: Share of clicks in all rows, and of conversions in clicks.
CLICKS, CONVERSIONS = 0.25, 0.2

_SAMPLE = 16_384
#: The sample's row numbers belong to a separate stream: none of its rows is in a log.
_SAMPLE_STREAM = 1


@dataclass(frozen=True)
class Probabilities:
    """Mapping from the parts of logits [rows, parts] to probabilities [rows].

    The weights give each part its intended size, whatever the seed and the settings; the biases
    give the base rates. Both are computed from a sample of the first day.
    """

    click_weights: Array
    click_bias: float
    conversion_weights: Array
    conversion_bias: float

    def click(self, parts: Array) -> Array:
        """Return the probability of a click."""
        return _sigmoid(parts @ self.click_weights + self.click_bias)

    def conversion(self, parts: Array) -> Array:
        """Return the probability of a conversion after a click."""
        return _sigmoid(parts @ self.conversion_weights + self.conversion_bias)


def calibrate(world: World) -> Probabilities:
    """Compute the probabilities of a world; the result is always the same."""
    parts = draw(world, 0, 0, _SAMPLE, stream=_SAMPLE_STREAM).parts
    spread = parts.std(axis=0)
    unit = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9)
    click = np.round(np.array([MAIN, PAIRS, DENSE, 0.0]) * unit, 6)
    own = np.array([0.0, 0.0, 0.0, CONVERSION_MAIN]) * unit
    conversion = np.round(CONVERSION_SHARE * click + own, 6)
    click_bias = _bias(parts @ click, np.ones(_SAMPLE), CLICKS)
    clicked = _sigmoid(parts @ click + click_bias)
    return Probabilities(
        click, click_bias, conversion, _bias(parts @ conversion, clicked, CONVERSIONS)
    )


def _bias(logits: Array, weights: Array, rate: float) -> float:
    """Return the bias to add to logits, so that their weighted mean probability is `rate`."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        if np.average(_sigmoid(logits + middle), weights=weights) < rate:
            low = middle
        else:
            high = middle
    return round(low, 6)


def _sigmoid(logits: Array) -> Array:
    result: Array = 1.0 / (1.0 + np.exp(-logits))
    return result
