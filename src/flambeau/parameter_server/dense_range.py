"""A server's range of the dense weights, updated by the user's own optimizer."""

from collections.abc import Callable, Sequence, Set
from itertools import groupby
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.errors import ProtocolError
from flambeau.parameter_server.dense_layout import (
    DenseLayout,
    Options,
    ParameterSlice,
    plain_options,
)
from flambeau.parameter_server.fusing import fuse, start_momentum
from flambeau.parameter_server.range_dump import (
    ParameterState,
    RangeDump,
    are_alike,
    require_covered,
    sorted_state,
    state_of,
    values_of,
)

Array = np.ndarray[Any, Any]
MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


class _Span(NamedTuple):
    """Neighbouring pieces that are one parameter to the optimizer, to save on calls per step."""

    pieces: list[ParameterSlice]
    values: nn.Parameter

    @property
    def bounds(self) -> tuple[int, int]:
        return self.pieces[0].start, self.pieces[-1].stop


@final
class DenseRange:
    """Values `start` to `stop` of the flat vector, zeros at first.

    `make` builds the optimizer from parameter groups with the layout's options. As long as all
    parameters get their gradients together, those of a group are joined into one. From the first
    step in which a parameter has no gradient, each is separate, so that such a parameter does not
    change, as in torch.
    """

    def __init__(self, layout: DenseLayout, start: int, stop: int, make: MakeOptimizer) -> None:
        self.start, self.stop = start, stop
        self._layout, self._make = layout, make
        self._flat = torch.zeros(stop - start, dtype=layout.torch_dtype)
        self._pieces = layout.pieces(start, stop)
        groups = groupby(self._pieces, self._group_of)
        self._arrange([list(pieces) for _, pieces in groups])
        self._options = [plain_options(group) for group in self._optimizer.param_groups]

    def _arrange(self, spans: list[list[ParameterSlice]]) -> None:
        """Build a new optimizer with one parameter per span."""
        self._spans = [
            _Span(pieces, nn.Parameter(self._flat[pieces[0].start : pieces[-1].stop]))
            for pieces in spans
        ]
        options = self._layout.groups
        groups: list[dict[str, Any]] = [{"params": [], **each} for each in options]
        for span in self._spans:
            groups[self._group_of(span.pieces[0])]["params"].append(span.values)
        self._optimizer = self._make(groups)
        fuse(self._optimizer)
        start_momentum(self._optimizer)

    def _group_of(self, piece: ParameterSlice) -> int:
        return self._layout.parameters[piece.parameter].group

    @property
    def values(self) -> Array:
        """Values [stop - start] in the memory that updates change, not a copy."""
        return self._flat.numpy()

    def initialise(self, values: Array) -> None:
        """Set the values to a copy of `values`."""
        self._check_size(values)
        self.values[:] = values

    def apply(self, gradient: Array, absent: Set[int], rates: Sequence[float]) -> None:
        """Apply a gradient [stop - start], with the learning rate of each group.

        Parameters whose indices are in `absent` have no gradient. The optimizer may overwrite
        `gradient`, which is not kept.
        """
        self._check_size(gradient)
        if absent and self._joined and any(each.parameter in absent for each in self._pieces):
            self._separate()
        whole = torch.from_numpy(np.require(gradient, self.values.dtype, ["C", "W"]))
        for span in self._spans:
            if span.pieces[0].parameter not in absent:
                start, stop = span.bounds
                span.values.grad = whole[start:stop]
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._optimizer.step()
        for span in self._spans:
            span.values.grad = None

    def dump(self) -> RangeDump:
        """Return copies of the values and the optimizer's state, for a checkpoint."""
        return {
            "start": self.start,
            "stop": self.stop,
            "values": self._flat.clone(),
            "state": self._flat_states(),
            "parameters": self._parameter_states(),
            "groups": self._changed_options(),
        }

    def load(self, dumps: Sequence[RangeDump]) -> None:
        """Restore from the dumps of any number of ranges that together cover this one."""
        require_covered(dumps, self.start, self.stop)
        self._flat.copy_(values_of(dumps, self.start, self.stop))
        if not all(self._alike(dumps, span) for span in self._spans):
            self._arrange([[piece] for piece in self._pieces])
        self._optimizer.state.clear()
        for span in self._spans:
            bounds = (self.start + bound for bound in span.bounds)
            self._optimizer.state[span.values] = state_of(dumps, span.pieces[0].parameter, *bounds)
        start_momentum(self._optimizer)
        for dump in dumps:
            for index, options in dump["groups"].items():
                self._optimizer.param_groups[index].update(options)

    @property
    def _joined(self) -> bool:
        return len(self._spans) < len(self._pieces)

    def _separate(self) -> None:
        before = self.dump()
        self._arrange([[piece] for piece in self._pieces])
        self.load([before])

    def _alike(self, dumps: Sequence[RangeDump], span: _Span) -> bool:
        return are_alike(
            dumps, [(piece.parameter, self.start + piece.start) for piece in span.pieces]
        )

    def _check_size(self, given: Array) -> None:
        if given.shape != self.values.shape:
            size = self.stop - self.start
            raise ProtocolError(f"an array of shape {list(given.shape)} for a range of {size}")

    def _flat_states(self) -> dict[str, Tensor]:
        flat: dict[str, Tensor] = {}
        for span in self._spans:
            state = self._optimizer.state[span.values]
            start, stop = span.bounds
            for key in sorted_state(state, stop - start)["flat"]:
                if key not in flat:
                    flat[key] = torch.zeros_like(self._flat, dtype=state[key].dtype)
                flat[key][start:stop] = state[key]
        return flat

    def _parameter_states(self) -> dict[int, ParameterState]:
        return {
            piece.parameter: sorted_state(self._optimizer.state[span.values], span.values.numel())
            for span in self._spans
            for piece in span.pieces
        }

    def _changed_options(self) -> dict[int, Options]:
        """Return the options that optimizers change in their groups, such as step counts."""
        changed = {}
        for index, group in enumerate(self._optimizer.param_groups):
            if group["params"]:
                now = plain_options(group)
                options = dict(now.items() - self._options[index].items())
                changed[index] = {key: now[key] for key in options if key != "lr"}
        return changed
