"""The workers of a job as one group: the few collective operations that training needs."""

from abc import ABC, abstractmethod
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor


class Group(ABC):
    """All workers, as seen by one of them."""

    rank: int
    size: int

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by its sum over all workers and return it."""

    @abstractmethod
    def broadcast(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by rank 0's and return it."""

    @abstractmethod
    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers, by rank, on every worker."""

    @property
    def position(self) -> int:
        """Index of this worker among the remaining ones: its rank, unless others were lost."""
        return self.rank

    @property
    def first(self) -> bool:
        """Return whether this is the worker that writes on behalf of all."""
        return self.rank == 0


@final
class Solo(Group):
    """Group of one worker, without any communication."""

    rank = 0
    size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself."""
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself."""
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        """Return this worker's bytes."""
        return [data]


@final
class ProcessGroup(Group):
    """Default group of torch.distributed."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def sum(self, tensor: Tensor) -> Tensor:
        """All-reduce in place."""
        dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Broadcast from rank 0 in place."""
        dist.broadcast(tensor, src=0)
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        """Gather sizes, then all contents, padded to the longest. Nothing is pickled."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(data)
        lengths = [int(length) for length in self.sum(sizes)]
        padded = torch.zeros(max(1, *lengths), dtype=torch.uint8)
        if data:
            padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded)
        return [
            part[:length].numpy().tobytes() for part, length in zip(parts, lengths, strict=True)
        ]
