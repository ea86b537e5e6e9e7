"""Sums over workers of one machine through shared memory, in a fraction of the time of sockets.

Collectives over sockets repeatedly wake up several threads of every process, which takes about as
long as a whole step of a small network.
"""

import mmap
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import final

import numpy as np
import torch
from torch import Tensor

from flambeau.coordination.activity import waits_for_others
from flambeau.errors import JobFailedError
from flambeau.messaging.memory_files import MemoryFile, can_share, create
from flambeau.strategies.group import Group

#: Bytes that a worker can exchange at once; larger tensors are sent in pieces.
PIECE_BYTES = 4 << 20
#: Up to this many bytes or workers, every worker sums everything, which saves one barrier.
FEW_BYTES, FEW_WORKERS = 1 << 14, 3
_CACHE_LINE = 64
#: Wait without pauses at first, then with pauses of a share of the time waited so far.
_SPIN_SECONDS, _BREAK_SHARE, _LONGEST_BREAK = 1e-3, 0.05, 1e-3
TIMEOUT_SECONDS = 1800.0


@final
class SharedGroup(Group):
    """Group that sums in shared `memory`, and uses the group `within` for everything else.

    Each worker copies its numbers to its own place and announces it. When all have done so,
    each worker sums the numbers of all in the order of ranks, so that all get the same result; with
    many workers, each sums a part, followed by another barrier. Two sets of places alternate:
    before a worker overwrites a set, a barrier has ensured that the others have read it.
    """

    def __init__(self, within: Group, memory: mmap.mmap, lost: Callable[[], str] = str) -> None:
        """Set up the places; `lost` returns why the others cannot be waited for, or ""."""
        self._lost = lost
        self._within, self.rank, self.size = within, within.rank, within.size
        header = _CACHE_LINE * self.size
        self._arrived = np.frombuffer(memory, np.int64, header // 8)[:: _CACHE_LINE // 8]
        bytes_of_sets = 2 * self.size * PIECE_BYTES
        places = torch.frombuffer(
            memory, dtype=torch.uint8, count=bytes_of_sets, offset=_first_place(self.size)
        )
        self._sets = places.view(2, self.size, PIECE_BYTES)
        self._meetings = self._sums = 0
        #: Total seconds that this worker has spent here.
        self.seconds = 0.0

    def sum(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by its sum over all workers and return it."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            return self._within.sum(tensor)
        started = time.perf_counter()
        for part in tensor.detach().view(-1).split(PIECE_BYTES // tensor.element_size()):  # type: ignore[no-untyped-call]
            self._add_up(part)
        self.seconds += time.perf_counter() - started
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Replace the tensor by rank 0's and return it."""
        return self._within.broadcast(tensor)

    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers, by rank, on every worker."""
        return self._within.gather(data)

    def _add_up(self, part: Tensor) -> None:
        self._sums += 1
        count, size = part.numel(), part.element_size()
        places = self._sets[self._sums % 2].view(part.dtype)[:, :count]
        places[self.rank].copy_(part)
        self._meet()
        if self.size <= FEW_WORKERS or count * size <= FEW_BYTES:
            _sum_of(places, part)
            return
        bounds = [count * rank // self.size for rank in range(self.size + 1)]
        mine = slice(bounds[self.rank], bounds[self.rank + 1])
        # No other worker reads this part of this worker's own place.
        _sum_of(places[:, mine].clone(), places[self.rank, mine])
        self._meet()
        for rank in range(self.size):
            theirs = slice(bounds[rank], bounds[rank + 1])
            part[theirs].copy_(places[rank, theirs])

    @waits_for_others
    def _meet(self) -> None:
        """Announce that this worker has reached the barrier, and wait until all have."""
        self._meetings += 1
        self._arrived[self.rank] = self._meetings
        started = time.perf_counter()
        while int(self._arrived.min()) < self._meetings:
            waited = time.perf_counter() - started
            if waited > TIMEOUT_SECONDS:
                raise JobFailedError(f"no message from another worker for {waited:.0f} s")
            if waited > _SPIN_SECONDS and (reason := self._lost()):
                raise JobFailedError(reason)
            if waited < _SPIN_SECONDS:
                select.select((), (), (), 0)  # lets other threads run, and takes a microsecond
            else:
                time.sleep(min(waited * _BREAK_SHARE, _LONGEST_BREAK))


def _sum_of(places: Tensor, out: Tensor) -> None:
    torch.add(places[0], places[1], out=out)
    for place in places[2:]:
        out.add_(place)


def shared_if_possible(group: Group, lost: Callable[[], str] = str) -> Group:
    """Return a group that uses shared memory if all workers are on one machine, else `group`.

    `lost` returns why the other workers can no longer be waited for, or "".
    """
    length = _first_place(group.size) + 2 * group.size * PIECE_BYTES
    made = create(length) if can_share() and group.first else None
    place = [made.process, made.descriptor, made.token] if made else [0, -1, 0]
    process, number, token = group.broadcast(torch.tensor(place)).tolist()
    memory = None
    with suppress(OSError, ValueError):
        memory = MemoryFile(process, number, token, length).open()
    everybody = int(group.sum(torch.tensor([memory is not None], dtype=torch.int64)))
    if made:
        made.close()
    return SharedGroup(group, memory, lost) if memory and everybody == group.size else group


def _first_place(workers: int) -> int:
    """Return the start of the places: the first page after the arrival counters."""
    return -(-_CACHE_LINE * workers // mmap.PAGESIZE) * mmap.PAGESIZE
