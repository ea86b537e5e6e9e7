"""Execution of the operations that all ranks have agreed on, in that order, in a thread."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import torch
from torch import Tensor

from flambeau.compat.horovod.execution.adasum import adasum
from flambeau.compat.horovod.execution.collectives import Collectives
from flambeau.compat.horovod.execution.fusion import fused
from flambeau.compat.horovod.execution.scaling import divide, scale
from flambeau.compat.horovod.execution.timeline import Timeline
from flambeau.compat.horovod.execution.work import Work, end
from flambeau.compat.horovod.negotiation.messages import OPERATIONS, Agreement, Request

Call = Callable[[], None]


class Groups(Protocol):
    """The process sets and works that the executor uses."""

    def collectives(self, process_set: int) -> Collectives | None:
        """Return the collectives of a process set; None if this rank is not in it."""

    def ranks(self, process_set: int) -> Sequence[int]:
        """Return the ranks of a process set."""

    def take(self, keys: Sequence[tuple[int, str]]) -> list[Work | None] | None:
        """Return the works with these keys; None in place of one if this rank has joined.

        Return None instead of a list if all works have failed, because a rank is lost.
        """

    def add(self, number: int, ranks: Sequence[int]) -> None:
        """Create a process set."""

    def remove(self, number: int) -> None:
        """Remove a process set."""


@final
class Executor:
    """One rank's executor."""

    def __init__(self, groups: Groups, fusion_bytes: int) -> None:
        self._groups, self._fusion_bytes = groups, fusion_bytes
        self._queue: queue.SimpleQueue[list[Agreement] | Call | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._buffers: dict[torch.dtype, Tensor] = {}
        self.timeline = Timeline()
        self._thread = threading.Thread(target=self._run, name="hvd-executor", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Return whether anything is being executed or queued."""
        return self._waiting > 0

    def put(self, what: list[Agreement] | Call) -> None:
        """Queue agreements, or a function to call after those queued before it."""
        with self._lock:
            self._waiting += 1
        self._queue.put(what)

    def stop(self, seconds: float) -> None:
        """Stop after the queued items; wait at most `seconds`."""
        self._queue.put(None)
        self._thread.join(seconds)
        self.timeline.stop()

    def _run(self) -> None:
        with torch.no_grad():
            while (item := self._queue.get()) is not None:
                if callable(item):
                    item()
                else:
                    for part in fused(item, self._fusion_bytes):
                        self._execute(part)
                with self._lock:
                    self._waiting -= 1

    def _execute(self, part: list[Agreement]) -> None:
        """Execute a part; if it fails, all its works fail."""
        works = self._groups.take([each.request.key for each in part])
        if works is None:
            return
        first = part[0]
        if first.error:
            _fail(works, first.error)
            return
        try:
            with self.timeline.executing([each.request for each in part]):
                self._dispatch(part, works)
        # Gloo fails when a rank is lost, the timeline when the disk is full: no thread may hang.
        except Exception as error:  # noqa: BLE001
            _fail(works, f"{first.request.kind} '{first.request.name}' failed: {error}")

    def _dispatch(self, part: list[Agreement], works: list[Work | None]) -> None:
        request, sizes, work = part[0].request, part[0].sizes, works[0]
        if request.kind == "add_process_set":
            self._groups.add(sizes[0], request.splits)
        elif request.kind == "remove_process_set":
            self._groups.remove(request.root)
        collectives = self._groups.collectives(request.process_set)
        if collectives is None:
            return
        if request.kind == "allreduce":
            self._reduce([each.request for each in part], works, collectives)
            return
        output = None
        if request.kind in ("join", "add_process_set"):
            output = sizes[0]
        elif request.kind == "barrier":
            collectives.barrier()
        elif work is not None and work.tensor is not None:
            output = self._on_tensor(request, sizes, work, work.tensor, collectives)
        if work is not None:
            work.finish(output)

    def _on_tensor(
        self, request: Request, sizes: list[int], work: Work, tensor: Tensor, group: Collectives
    ) -> Any:
        data = _contiguous(tensor)
        match request.kind:
            case "broadcast":
                data = data.clone() if data is tensor and work.target is None else data
                ranks = list(self._groups.ranks(request.process_set))
                group.broadcast(data, ranks.index(request.root))
                return _delivered(data, work)
            case "allgather":
                return _delivered(group.gather(data, sizes), work)
            case "alltoall":
                return self._all_to_all(data, sizes, tensor, group)
            case "adasum":
                return _delivered(adasum(data, group), work)
        return self._reduce_scatter(request, data, tensor, group)

    def _all_to_all(
        self, data: Tensor, sizes: list[int], tensor: Tensor, group: Collectives
    ) -> tuple[Tensor, Tensor]:
        size, rank = group.size, group.rank
        received = sizes[rank::size]
        sent = sizes[rank * size : (rank + 1) * size]
        if sum(sizes) and all(tensor.shape[1:]):
            out = group.exchange(data, sent, received)
        else:
            out = data.new_empty((sum(received), *tensor.shape[1:]))
        return out.to(tensor.device), torch.tensor(received, dtype=torch.int32)

    def _reduce_scatter(
        self, request: Request, data: Tensor, tensor: Tensor, group: Collectives
    ) -> Tensor:
        total = data.clone()
        self._sum([total], request, group)
        rows, rest = divmod(total.shape[0], group.size)
        first = group.rank * rows + min(group.rank, rest)
        own = total[first : first + rows + (group.rank < rest)].clone()
        return own.to(tensor.device)

    # Sums

    def _reduce(
        self, requests: list[Request], works: list[Work | None], group: Collectives
    ) -> None:
        inputs = [
            torch.zeros(request.shape, dtype=getattr(torch, request.dtype))
            if work is None or work.tensor is None
            else _contiguous(work.tensor)
            for request, work in zip(requests, works, strict=True)
        ]
        if len(inputs) > 1:
            self._reduce_fused(inputs, requests[0], works, group)
            return
        (result,), (work,) = inputs, works
        if work is not None and result is work.tensor and work.target is not work.tensor:
            result = result.clone()
        self._sum([result], requests[0], group)
        if work is not None:
            work.finish(_delivered(result, work))

    def _reduce_fused(
        self, inputs: list[Tensor], request: Request, works: list[Work | None], group: Collectives
    ) -> None:
        """Reduce tensors of one type in one buffer, and deliver the results together."""
        buffer = self._buffer(inputs[0].dtype, sum([each.numel() for each in inputs]))
        torch.cat([each.view(-1) for each in inputs], out=buffer)
        self._sum([buffer], request, group)
        outputs = torch._C._nn.unflatten_dense_tensors(buffer, inputs)
        targets: list[Tensor] = []
        found: list[Tensor] = []
        for work, output in zip(works, outputs, strict=True):
            if work is not None and work.tensor is not None:
                # Copied: the next sum overwrites the buffer.
                new = work.target is None
                work.output = work.tensor.new_empty(work.tensor.shape) if new else work.target
                if output.numel():
                    targets.append(work.output)
                    found.append(output)
        if targets:
            torch._foreach_copy_(targets, found)
        end(works)

    def _buffer(self, dtype: torch.dtype, count: int) -> Tensor:
        held = self._buffers.get(dtype)
        if held is None or held.numel() < count:
            held = self._buffers[dtype] = torch.empty(count, dtype=dtype)
        return held[:count]

    def _sum(self, tensors: list[Tensor], request: Request, group: Collectives) -> None:
        """Reduce in place, scaled by the factors of the request."""
        operation = OPERATIONS[request.op]
        for tensor in tensors:
            scale(tensor, request.prescale)
            group.reduce(tensor, operation)
            if operation == "Average":
                divide(tensor, group.size)
            scale(tensor, request.postscale)


def _contiguous(tensor: Tensor) -> Tensor:
    """Return the tensor itself if it is contiguous on the CPU, else such a copy."""
    if tensor.is_cpu and tensor.is_contiguous():
        return tensor
    return tensor.detach().cpu().contiguous()


def _delivered(output: Tensor, work: Work) -> Tensor:
    """Return the output where it is expected: in the target, or on the device of the input."""
    assert work.tensor is not None
    if work.target is None:
        if output.device != work.tensor.device:
            return output.to(work.tensor.device)
        return output
    if work.target is not output:
        work.target.copy_(output)
    return work.target


def _fail(works: Sequence[Work | None], error: str) -> None:
    for work in works:
        if work is not None:
            work.fail(error)
