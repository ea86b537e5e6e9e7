"""Reductions, gathers and broadcasts of one process set, for all data types, on the CPU."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from flambeau.strategies.group import Group
from flambeau.strategies.shared_group import shared_if_possible

TIMEOUT = timedelta(minutes=30)
#: Types that Gloo cannot reduce as expected, and the types used instead.
_WIDER = {torch.int16: torch.int32, torch.bool: torch.int32}
_OPERATIONS: dict[str, Any] = {
    "Average": dist.ReduceOp.SUM,
    "Sum": dist.ReduceOp.SUM,
    "Min": dist.ReduceOp.MIN,
    "Max": dist.ReduceOp.MAX,
    "Product": dist.ReduceOp.PRODUCT,
}


@final
class Collectives:
    """The collectives of one process set. All its ranks call them in the same order."""

    def __init__(
        self, store: Any, host: str, rank: int, size: int, lost: Callable[[], str]
    ) -> None:
        """`lost` returns why other ranks can no longer be waited for; empty if they can."""
        self.rank, self.size = rank, size
        gloo: Any = c10d.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = TIMEOUT
        self._gloo: Any = gloo(store, rank, size, options)
        self._gloo.barrier().wait()
        self._sums = shared_if_possible(GlooGroup(self._gloo, rank, size), lost)

    def reduce(self, tensor: Tensor, operation: str) -> None:
        """Replace a contiguous tensor with the sum (minimum, ...) over ranks."""
        if not tensor.numel() or self.size == 1:
            return
        wider = _WIDER.get(tensor.dtype)
        if wider is not None:
            wide = tensor.to(wider)
            self.reduce(wide, operation)
            tensor.copy_(wide)
        elif operation in ("Sum", "Average"):
            self._sums.sum(tensor)
        else:
            options = dist.AllreduceOptions()
            options.reduceOp = _OPERATIONS[operation]
            self._gloo.allreduce([tensor], options).wait()

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Replace a contiguous tensor with that of the rank with index `root` in the set."""
        if not tensor.numel() or self.size == 1:
            return
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._gloo.broadcast([_bytes(tensor)], options).wait()

    def gather(self, tensor: Tensor, rows: Sequence[int]) -> Tensor:
        """Return the rows of all ranks in a new tensor; `rows` has the number of each rank."""
        out = tensor.new_empty((sum(rows), *tensor.shape[1:]))
        if not out.numel():
            return out
        width = out.numel() // sum(rows) * out.element_size()
        longest = max(rows) * width
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: tensor.numel() * tensor.element_size()] = _bytes(tensor)
        everything = torch.empty(self.size * longest, dtype=torch.uint8)
        if self.size > 1:
            self._gloo._allgather_base(everything, padded).wait()
        else:
            everything.copy_(padded)
        pieces: Any = torch.split(everything, longest)
        parts = [part[: n * width] for part, n in zip(pieces, rows, strict=True)]
        torch.cat(parts, out=_bytes(out))
        return out

    def exchange(self, tensor: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Send `sent` rows to each rank, and return the `received` rows of each in a new tensor."""
        out = tensor.new_empty((sum(received), *tensor.shape[1:]))
        width = math.prod(tensor.shape[1:]) * tensor.element_size()
        if self.size == 1:
            out.copy_(tensor)
            return out
        self._gloo.alltoall_base(
            _bytes(out), _bytes(tensor), [n * width for n in received], [n * width for n in sent]
        ).wait()
        return out

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            self._gloo.barrier().wait()

    def abort(self) -> None:
        """Abort operations that wait for lost ranks."""
        self._gloo.abort()


@final
class GlooGroup(Group):
    """The collectives of a process set that sums in shared memory use."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        self._gloo, self.rank, self.size = gloo, rank, size

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over ranks in place, and return it."""
        self._gloo.allreduce([tensor], dist.AllreduceOptions()).wait()
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Broadcast a tensor from the first rank in place, and return it."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._gloo.broadcast([tensor], options).wait()
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        """Raise: `Collectives` gathers."""
        raise NotImplementedError


def _bytes(tensor: Tensor) -> Tensor:
    """Return the memory of a contiguous tensor as bytes, without a copy."""
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    return tensor.detach().reshape(-1).view(torch.uint8)
