"""The saved state of a dense range, and how the dumps of some ranges are cut for others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor

from flambeau.errors import CheckpointError, ModelError
from flambeau.parameter_server.dense_layout import Options


class ParameterState(TypedDict):
    """Optimizer state of a parameter in one range: names of its flat states, and its scalars."""

    flat: list[str]
    scalars: dict[str, Any]


class RangeDump(TypedDict):
    """Values `start` to `stop` of the flat vector, and the optimizer's state for them.

    `state` has a tensor [stop - start] per kind of state, zero where a parameter has none yet.
    `parameters` is by parameter index; `groups` are options that the optimizer changed, by group.
    """

    start: int
    stop: int
    values: Tensor
    state: dict[str, Tensor]
    parameters: dict[int, ParameterState]
    groups: dict[int, Options]


def sorted_state(state: Mapping[str, Any], size: int) -> ParameterState:
    """Return the state of a piece of `size` values: names of flat tensors, and copied scalars."""
    flat = [key for key, value in state.items() if _is_flat(value, size)]
    return {
        "flat": flat,
        "scalars": {key: _scalar(key, value) for key, value in state.items() if key not in flat},
    }


def require_covered(dumps: Sequence[RangeDump], start: int, stop: int) -> None:
    """Raise `CheckpointError` if any value from `start` to `stop` is in none of the dumps."""
    reached = start
    for dump in sorted(dumps, key=lambda dump: dump["start"]):
        if dump["start"] <= reached:
            reached = max(reached, dump["stop"])
    if reached < stop:
        raise CheckpointError(
            f"dense weights {reached} to {stop} are in none of the {len(dumps)} saved ranges; "
            "use a complete checkpoint"
        )


def values_of(dumps: Sequence[RangeDump], start: int, stop: int) -> Tensor:
    """Return a copy of the values from `start` to `stop` of the flat vector."""
    return _gathered(dumps, start, stop, lambda dump: dump["values"])


def state_of(dumps: Sequence[RangeDump], parameter: int, start: int, stop: int) -> dict[str, Any]:
    """Return a copy of the optimizer state of a parameter's piece from `start` to `stop`.

    Scalars are those of the range that contains its start: asynchronous shards may differ.
    """
    saved = _saved(dumps, parameter, start)
    if saved is None:
        return {}
    scalars = {key: _scalar(key, value) for key, value in saved["scalars"].items()}
    flat = {key: _flat_state(dumps, key, start, stop) for key in saved["flat"]}
    return scalars | flat


def are_alike(dumps: Sequence[RangeDump], places: Sequence[tuple[int, int]]) -> bool:
    """Return whether parameters have the same kinds of state and scalars.

    Each place is a parameter index and the start of the piece.
    """
    states = [_saved(dumps, *place) for place in places]
    return all(state == states[0] for state in states)


def _saved(dumps: Sequence[RangeDump], parameter: int, start: int) -> ParameterState | None:
    first = next(dump for dump in dumps if dump["start"] <= start < dump["stop"])
    return first["parameters"].get(parameter)


def _flat_state(dumps: Sequence[RangeDump], key: str, start: int, stop: int) -> Tensor:
    return _gathered(dumps, start, stop, lambda dump: dump["state"].get(key))


def _gathered(
    dumps: Sequence[RangeDump], start: int, stop: int, part: Callable[[RangeDump], Tensor | None]
) -> Tensor:
    parts = [(dump["start"], whole) for dump in dumps if (whole := part(dump)) is not None]
    out = torch.zeros(stop - start, dtype=parts[0][1].dtype if parts else None)
    for begin, whole in parts:
        low, high = max(start, begin), min(stop, begin + len(whole))
        if low < high:
            out[low - start : high - start] = whole[low - begin : high - begin]
    return out


def _is_flat(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.shape == (size,)


def _scalar(key: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.ndim == 0:
        return value.clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value).__name__
    shape = f" of shape {list(value.shape)}" if isinstance(value, Tensor) else ""
    raise ModelError(
        f"the optimizer's state '{key}' is a {kind}{shape}, neither a value per weight nor a scalar"
    )
