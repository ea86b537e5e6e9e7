"""The trained weights of a model as one flat vector that is cut into ranges."""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.config.plural import number_of
from flambeau.errors import ModelError

Plain = bool | int | float | str | None
Options = dict[str, Plain | tuple[Plain, ...]]
DtypeName = Literal["float16", "float32", "float64"]

_DTYPES: dict[torch.dtype, DtypeName] = {
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
_NAMES = ("params", "param_names")
#: Options that a schedule changes while training, and those that depend on the device.
_MAY_DIFFER = ("lr", "initial_lr", "fused", "foreach", "capturable")


class DenseParameter(msgspec.Struct, frozen=True):
    """Trainable parameter; `group` is the index of its group in the optimizer."""

    name: str
    numel: int
    group: int


class ParameterSlice(NamedTuple):
    """Part of a parameter inside a range: `start` to `stop`, relative to the start of the range."""

    parameter: int
    start: int
    stop: int


class DenseLayout(msgspec.Struct, frozen=True):
    """Parameters in the order of the flat vector, and the options of the optimizer's groups.

    Made of plain values, so that it can be sent as JSON or msgpack.
    """

    parameters: tuple[DenseParameter, ...]
    dtype: DtypeName
    groups: tuple[Options, ...]

    def __post_init__(self) -> None:
        for parameter in self.parameters:
            if parameter.numel < 0 or not 0 <= parameter.group < len(self.groups):
                raise ValueError(f"{parameter} does not fit {len(self.groups)} groups")

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer) -> Self:
        """Return the layout of the model's parameters that `optimizer` trains."""
        trained = trained_parameters(model, optimizer)
        group_of = _group_of(optimizer)
        return cls(
            tuple(
                DenseParameter(name, parameter.numel(), group_of[parameter])
                for name, parameter in trained.items()
            ),
            _common_dtype(trained),
            tuple(plain_options(group) for group in optimizer.param_groups),
        )

    @property
    def numel(self) -> int:
        """Length of the flat vector."""
        return sum(parameter.numel for parameter in self.parameters)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of the values."""
        return getattr(torch, self.dtype)  # type: ignore[no-any-return]

    def ranges(self, shards: int) -> list[tuple[int, int]]:
        """Return (start, stop) per shard; their lengths differ by at most one."""
        return list(pairwise(self.numel * shard // shards for shard in range(shards + 1)))

    def pieces(self, start: int, stop: int) -> list[ParameterSlice]:
        """Return the pieces of parameters inside a range, in order."""
        ends = accumulate((parameter.numel for parameter in self.parameters), initial=0)
        cuts = [
            (index, max(begin, start) - start, min(end, stop) - start)
            for index, (begin, end) in enumerate(pairwise(ends))
        ]
        return [ParameterSlice(*cut) for cut in cuts if cut[1] < cut[2]]

    def check_same(self, other: "DenseLayout") -> None:
        """Raise `ModelError` that names the first difference, if any; learning rates may differ."""
        for difference in _differences(self, other):
            raise ModelError(
                f"{difference}; build the same model and optimizer in every process and run"
            )


def trained_parameters(model: nn.Module, optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """Return the trainable parameters that `optimizer` has, in the model's order.

    Raises `ModelError` if the optimizer has parameters that the model lacks.
    """
    wanted = _group_of(optimizer)
    trained = {name: value for name, value in model.named_parameters() if value in wanted}
    strangers = wanted.keys() - trained.values()
    if strangers:
        shapes = sorted(str(list(parameter.shape)) for parameter in strangers)
        raise ModelError(
            f"the optimizer has {number_of(len(strangers), 'parameter')} that the model does not "
            f"have, of shape {shapes[0]}; give it parameters of the model only"
        )
    return trained


def _group_of(optimizer: Optimizer) -> dict[nn.Parameter, int]:
    return {
        parameter: index
        for index, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
        if parameter.requires_grad
    }


def _common_dtype(trained: dict[str, nn.Parameter]) -> DtypeName:
    names = {parameter.dtype: name for name, parameter in reversed(trained.items())}
    for dtype, name in names.items():
        if dtype not in _DTYPES:
            raise ModelError(
                f"parameter '{name}' is {dtype}; a parameter server takes float32, float64 and "
                "float16: keep float32 weights and compute in lower precision"
            )
    if len(names) > 1:
        (one, first), (two, second), *_ = names.items()
        raise ModelError(
            f"parameter '{first}' is {one} and '{second}' is {two}; a parameter server needs one "
            "dtype: convert the model, e.g. with model.float()"
        )
    return _DTYPES[next(iter(names), torch.float32)]


def plain_options(group: dict[str, Any]) -> Options:
    """Return a group's options without its parameters; raise `ModelError` unless all are plain."""
    return {name: _plain(value, name) for name, value in group.items() if name not in _NAMES}


def _plain(value: Any, name: str) -> Plain | tuple[Plain, ...]:
    if isinstance(value, list | tuple):
        return tuple(_plain_scalar(item, name) for item in value)
    return _plain_scalar(value, name)


def _plain_scalar(value: Any, name: str) -> Plain:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ModelError(
        f"the optimizer's option '{name}' is a {type(value).__name__}, which cannot be sent to "
        "servers; use a number, a bool, text or a tuple of these"
    )


def _differences(ours: DenseLayout, theirs: DenseLayout) -> Iterator[str]:
    for parameter, other in zip(ours.parameters, theirs.parameters, strict=False):
        if parameter != other:
            pair = f"{_described(parameter)} here is {_described(other)} there"
            yield f"the models differ: {pair}"
    for what in ("parameters", "groups"):
        counts = len(getattr(ours, what)), len(getattr(theirs, what))
        if counts[0] != counts[1]:
            yield f"the models differ: {counts[0]} {what} here, {counts[1]} there"
    if ours.dtype != theirs.dtype:
        yield f"the models differ: {ours.dtype} here, {theirs.dtype} there"
    for group, (options, others) in enumerate(zip(ours.groups, theirs.groups, strict=False)):
        for name in sorted({*options, *others} - {*_MAY_DIFFER}):
            if options.get(name) != others.get(name):
                pair = f"{options.get(name)!r} here, {others.get(name)!r} there"
                yield f"the optimizers differ: option '{name}' of group {group} is {pair}"


def _described(parameter: DenseParameter) -> str:
    return f"'{parameter.name}' ({parameter.numel} values, group {parameter.group})"
