"""The compiled logarithm of `Log`, bit-identical to that of the reader of Criteo's logs."""

from typing import Any

from flambeau.data.sources.text.criteo_kernels import log_one_plus
from flambeau.kernels.compiled import kernel


@kernel
def logarithms(values: Any, out: Any) -> None:
    """Write log(1 + value) of float64 values as float32; 0 for negative values and NaN."""
    for i in range(values.size):
        value = values[i]
        out[i] = log_one_plus(value) if value > 0.0 else 0.0
