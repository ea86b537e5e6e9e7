"""Broadcasts and gathers of parameters, optimizer states and objects."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import cloudpickle
import torch
from torch import Tensor

from flambeau.compat.horovod.engine.running import engine
from flambeau.compat.horovod.operations.broadcasting import broadcast_, broadcast_async_
from flambeau.compat.horovod.operations.gathering import allgather
from flambeau.compat.horovod.operations.handles import synchronize
from flambeau.compat.horovod.process_sets import ProcessSet, global_process_set


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Replace parameters with those of a rank.

    `params` is a `state_dict()`, `named_parameters()` or `parameters()`.
    """
    items = list(params.items() if isinstance(params, Mapping) else _named(params))
    # Names may differ from those of gradients that are in flight.
    handles = [
        broadcast_async_(value.data, root_rank, f"parameters.{name}", process_set)
        for name, value in items
        if isinstance(value, Tensor)
    ]
    for handle in handles:
        synchronize(handle)


def _named(params: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(params, Iterable):
        items = list(params)
        if all(isinstance(item, Tensor) for item in items):
            return ((str(index), item) for index, item in enumerate(items))
        if all(isinstance(item, tuple) and len(item) == 2 for item in items):
            return items
    raise ValueError(
        f"invalid params of type: {type(params)}; give a state_dict, named_parameters or parameters"
    )


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Replace the state of an optimizer, and its settings, with those of a rank.

    Ranks without a state receive that of the root, so no step is needed first. As in Horovod,
    parameters of an optimizer without state have a gradient of zeros afterwards.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    own = optimizer.state_dict()
    if not own["state"]:
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    tensors: list[Tensor] = []
    described = _described(own, tensors) if engine().place.rank == root_rank else None
    described = broadcast_object(described, root_rank, "optimizer_state", process_set)
    received = _received(described, tensors, engine().place.rank == root_rank)
    for index, tensor in enumerate(received):
        broadcast_(tensor, root_rank, f"optimizer_state.{index}", process_set)
    if engine().place.rank != root_rank:
        optimizer.load_state_dict(_filled(described, received))


class _Place:
    """A placeholder for a tensor in a described value."""

    def __init__(self, index: int, dtype: torch.dtype, shape: list[int]) -> None:
        self.index, self.dtype, self.shape = index, dtype, shape


def _described(value: Any, tensors: list[Tensor]) -> Any:
    """Return a value with placeholders for its tensors, which are added to the list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1, value.dtype, list(value.shape))
    if isinstance(value, dict):
        return {key: _described(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_described(item, tensors) for item in value)
    return value


def _received(described: Any, tensors: list[Tensor], is_root: bool) -> list[Tensor]:
    """Return tensors for the placeholders: the root's own, or new ones."""
    if is_root:
        return tensors
    if isinstance(described, _Place):
        return [torch.empty(described.shape, dtype=described.dtype)]
    values: Iterable[Any] = ()
    if isinstance(described, dict):
        values = described.values()
    elif isinstance(described, list | tuple):
        values = described
    return [tensor for value in values for tensor in _received(value, [], False)]


def _filled(described: Any, tensors: list[Tensor]) -> Any:
    """Return a described value with its tensors."""
    if isinstance(described, _Place):
        return tensors[described.index]
    if isinstance(described, dict):
        return {key: _filled(item, tensors) for key, item in described.items()}
    if isinstance(described, list | tuple):
        return type(described)(_filled(item, tensors) for item in described)
    return described


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return a rank's object, which must be picklable. Ranks trust each other's pickles."""
    name = name or "broadcast_object"
    is_root = engine().place.rank == root_rank
    data = _pickled(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    size = broadcast_(torch.tensor([data.numel()]), root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else pickle.loads(data.numpy().tobytes())


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return a function that broadcasts objects."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, by rank; they must be picklable."""
    name = name or "allgather_object"
    data = _pickled(obj)
    sizes = allgather(torch.tensor([data.numel()]), f"{name}.sz", process_set).tolist()
    everything = allgather(data, f"{name}.t", process_set)
    return [pickle.loads(part.numpy().tobytes()) for part in torch.split(everything, sizes)]


def _pickled(obj: Any) -> Tensor:
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)
