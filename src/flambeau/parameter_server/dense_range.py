"""A server's range of the dense weights, updated by the user's own optimizer."""

from collections.abc import Callable, Sequence, Set
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.errors import ProtocolError
from flambeau.parameter_server.dense_layout import DenseLayout, Options, plain_options
from flambeau.parameter_server.fusing import fuse, start_momentum
from flambeau.parameter_server.range_dump import (
    ParameterState,
    RangeDump,
    require_covered,
    sorted_state,
    state_of,
    values_of,
)

Array = np.ndarray[Any, Any]
MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


@final
class DenseRange:
    """Values `start` to `stop` of the flat vector, zeros at first.

    `make` builds the optimizer from parameter groups with the layout's options. Each parameter has
    a piece of its own, so that one without a gradient keeps still, as it does in torch.
    """

    def __init__(self, layout: DenseLayout, start: int, stop: int, make: MakeOptimizer) -> None:
        self.start, self.stop = start, stop
        self._flat = torch.zeros(stop - start, dtype=layout.torch_dtype)
        self._pieces = layout.pieces(start, stop)
        self._parameters = [
            nn.Parameter(self._flat[piece.start : piece.stop]) for piece in self._pieces
        ]
        self._optimizer = make(self._grouped(layout))
        fuse(self._optimizer)
        start_momentum(self._optimizer)
        self._options = [plain_options(group) for group in self._optimizer.param_groups]

    @property
    def values(self) -> Array:
        """The values, [stop - start]: the memory that updates change, not a copy."""
        return self._flat.numpy()

    def initialise(self, values: Array) -> None:
        """Begin with a copy of `values`."""
        self._check_size(values)
        self.values[:] = values

    def apply(self, gradient: Array, absent: Set[int], rates: Sequence[float]) -> None:
        """One step with a gradient [stop - start] and the learning rate of each group.

        Parameters whose indices are in `absent` have no gradient. The optimizer may overwrite
        `gradient`, which is not kept.
        """
        self._check_size(gradient)
        whole = torch.from_numpy(np.require(gradient, self.values.dtype, ["C", "W"]))
        for piece, parameter in zip(self._pieces, self._parameters, strict=True):
            if piece.parameter not in absent:
                parameter.grad = whole[piece.start : piece.stop]
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def dump(self) -> RangeDump:
        """The values and the optimizer's state, copied, such as a checkpoint takes them."""
        return {
            "start": self.start,
            "stop": self.stop,
            "values": self._flat.clone(),
            "state": self._flat_states(),
            "parameters": self._parameter_states(),
            "groups": self._changed_options(),
        }

    def load(self, dumps: Sequence[RangeDump]) -> None:
        """Go on from the dumps of any number of ranges that together hold this one."""
        require_covered(dumps, self.start, self.stop)
        self._flat.copy_(values_of(dumps, self.start, self.stop))
        self._optimizer.state.clear()
        for piece, parameter in zip(self._pieces, self._parameters, strict=True):
            start, stop = self.start + piece.start, self.start + piece.stop
            self._optimizer.state[parameter] = state_of(dumps, piece.parameter, start, stop)
        start_momentum(self._optimizer)
        for dump in dumps:
            for index, options in dump["groups"].items():
                self._optimizer.param_groups[index].update(options)

    def _grouped(self, layout: DenseLayout) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = [{"params": [], **options} for options in layout.groups]
        for piece, parameter in zip(self._pieces, self._parameters, strict=True):
            groups[layout.parameters[piece.parameter].group]["params"].append(parameter)
        return groups

    def _check_size(self, given: Array) -> None:
        if given.shape != self.values.shape:
            size = self.stop - self.start
            raise ProtocolError(f"an array of shape {list(given.shape)} for a range of {size}")

    def _flat_states(self) -> dict[str, Tensor]:
        flat: dict[str, Tensor] = {}
        for piece, parameter in zip(self._pieces, self._parameters, strict=True):
            state = self._optimizer.state[parameter]
            for key in sorted_state(state, piece.stop - piece.start)["flat"]:
                if key not in flat:
                    flat[key] = torch.zeros_like(self._flat, dtype=state[key].dtype)
                flat[key][piece.start : piece.stop] = state[key]
        return flat

    def _parameter_states(self) -> dict[int, ParameterState]:
        return {
            piece.parameter: sorted_state(
                self._optimizer.state[parameter], piece.stop - piece.start
            )
            for piece, parameter in zip(self._pieces, self._parameters, strict=True)
        }

    def _changed_options(self) -> dict[int, Options]:
        """What some optimizers count in their groups, where others keep it per parameter."""
        changed = {}
        for index, group in enumerate(self._optimizer.param_groups):
            if group["params"]:
                now = plain_options(group)
                options = dict(now.items() - self._options[index].items())
                changed[index] = {key: now[key] for key in options if key != "lr"}
        return changed
