"""A measurement of whether bf16 is worthwhile on this CPU."""

import time

import torch
from torch import Tensor

_SIZE, _TIMES = 128, 10
#: A CPU with instructions for bf16 is faster with it; one without is about ten times slower.
_TOO_SLOW = 2.0


def bf16_slowdown() -> float:
    """Return how many times longer a matrix product takes in bf16 than in fp32 on this CPU."""
    halves, floats = (torch.ones(_SIZE, _SIZE, dtype=d) for d in (torch.bfloat16, torch.float32))
    threads = torch.get_num_threads()
    # A single thread's CPU time does not depend on other load of the machine.
    torch.set_num_threads(1)
    try:
        times = [(_seconds(halves), _seconds(floats)) for _ in range(_TIMES)]
    finally:
        torch.set_num_threads(threads)
    return min(half for half, _ in times) / min(full for _, full in times)


def bf16_warning(slowdown: float) -> str | None:
    """Return a warning if bf16 makes training slower on this CPU, otherwise None."""
    if slowdown < _TOO_SLOW:
        return None
    return (
        f"compute.precision='bf16' on a CPU without instructions for it: a product of matrices "
        f"takes {slowdown:.0f} times as long as in fp32; use precision='fp32'"
    )


def _seconds(matrix: Tensor) -> float:
    started = time.thread_time()
    torch.mm(matrix, matrix)
    return time.thread_time() - started
