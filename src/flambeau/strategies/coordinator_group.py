"""Collective operations of asynchronous workers, which exchange data through the coordinator."""

import threading
import time
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from flambeau.coordination.activity import waits_for_others
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.task_messages import Contribution, Gathered
from flambeau.errors import RequestTimeoutError
from flambeau.strategies.group import Group

EXCHANGE_SECONDS = 3600.0


@final
class CoordinatorGroup(Group):
    """All asynchronous workers, which exchange data through the coordinator at sync points.

    A replacement worker repeats the exchanges of the sync point and gets the same answers. `size`
    is how many workers took part in the last exchange, or are to take part in the next one.
    """

    def __init__(self, coordinator: CoordinatorClient) -> None:
        self.rank, self.size = coordinator.spec.rank, coordinator.spec.world
        self._position = self.rank
        self._coordinator = coordinator
        self._changed = threading.Condition()
        self._answers: dict[str, Sequence[Any]] = {}
        self._sync_point, self._number = -1, 0
        coordinator.on(Gathered, self._on_gathered)

    @property
    def position(self) -> int:
        """See `Group`: as of the last sync point."""
        return self._position

    def enter(self, sync_point: int, ranks: Sequence[int]) -> None:
        """Start the exchanges of a sync point, at which these workers meet."""
        self._sync_point, self._number = sync_point, 0
        self._position, self.size = ranks.index(self.rank), len(ranks)
        with self._changed:
            self._answers = {
                key: parts
                for key, parts in self._answers.items()
                if key.startswith(f"{sync_point}/")
            }

    @waits_for_others
    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers, by rank."""
        key = f"{self._sync_point}/{self._number}"
        self._number += 1
        self._coordinator.send(Contribution(self._coordinator.spec, key), [data])
        deadline = time.monotonic() + EXCHANGE_SECONDS
        with self._changed:
            while key not in self._answers:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise RequestTimeoutError(
                        f"the other workers did not arrive within {EXCHANGE_SECONDS:.0f} s"
                    )
            parts = [bytes(part) for part in self._answers.pop(key)]
        self.size = len(parts)
        return parts

    def sum(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by its sum over all workers, in the order of ranks."""
        parts = self.gather(tensor.detach().cpu().contiguous().numpy().tobytes())
        total = torch.zeros_like(tensor, device="cpu")
        for part in parts:
            total += torch.frombuffer(bytearray(part), dtype=tensor.dtype).view_as(total)
        tensor.copy_(total)
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by the first worker's."""
        own = tensor.detach().cpu().contiguous().numpy().tobytes() if self.first else b""
        first = self.gather(own)[0]
        tensor.copy_(torch.frombuffer(bytearray(first), dtype=tensor.dtype).view_as(tensor))
        return tensor

    def _on_gathered(self, message: Gathered, buffers: Sequence[Any]) -> None:
        with self._changed:
            self._answers[message.key] = buffers
            self._changed.notify_all()
