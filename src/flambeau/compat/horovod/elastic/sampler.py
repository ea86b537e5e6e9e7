"""A sampler of the rows of an epoch that no rank has trained on yet."""

import random
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from torch.utils.data import Sampler

from flambeau.compat.horovod.engine.running import is_running, place


class ElasticSampler(Sampler[int]):
    """Rows of this rank, as with `DistributedSampler`, but without those of recorded batches.

    Call `set_epoch` at the end of an epoch, not at its start: a restored epoch continues.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.done: tuple[int, set[int]] = 0, set()
        self.rank, self.num_replicas = 0, 1
        self.remaining_indices: list[int] = []
        self.indices: list[int] = []
        self.reset()

    @property
    def processed_indices(self) -> set[int]:
        """The trained rows of this epoch: of this rank, and of all ranks up to the last sync."""
        return self.done[1]

    def set_epoch(self, epoch: int) -> None:
        """Start another epoch, with all rows."""
        self.epoch = epoch
        self.done = epoch, set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that this rank has trained on a batch."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Sequence[int]) -> None:
        """Record that this rank has trained on these rows."""
        self.done[1].update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the rows of one of this rank's batches."""
        first = batch_idx * batch_size
        return self.indices[first : first + batch_size]

    def unite(self, done: Sequence[tuple[int, set[int]]]) -> None:
        """Merge the rows that all ranks have trained on in this epoch."""
        for epoch, rows in done:
            if epoch == self.epoch:
                self.done[1].update(rows)
        self.reset()

    def reset(self) -> None:
        """Divide the remaining rows among the current ranks."""
        if is_running():
            self.rank, self.num_replicas = place().rank, place().size
        done = self.done[1]
        self.remaining_indices = [row for row in range(len(self.dataset)) if row not in done]
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(self.remaining_indices)
        rows = self.remaining_indices
        short = -len(rows) % self.num_replicas
        padded = [*rows, *(rows * short)[:short]]
        self.indices = padded[self.rank :: self.num_replicas]

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the rows trained on in it."""
        return {"epoch": self.epoch, "processed_indices": sorted(self.done[1])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of another sampler."""
        self.epoch = state["epoch"]
        self.done = self.epoch, set(state["processed_indices"])
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)
