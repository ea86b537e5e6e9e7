"""Reduction of gradients as soon as backward has computed them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from flambeau.compat.horovod.common.util import split_list
from flambeau.compat.horovod.compression import Compressor
from flambeau.compat.horovod.operations.handles import (
    Average,
    flush,
    start,
    synchronize,
    work_of,
)
from flambeau.compat.horovod.operations.sparse import sparse_allreduce_async
from flambeau.compat.horovod.process_sets import ProcessSet

#: Requests are sent once they cover this many bytes, or all gradients have been computed.
SEND_BYTES = 1 << 20
_GROUPS = "give a non-negative integer or a list of lists of parameters"


def named_list(
    param_groups: Sequence[dict[str, Any]],
    named: Iterable[tuple[str, Tensor]] | None,
    prefix: str,
) -> dict[Tensor, str]:
    """Return the names of all parameters; raise an error for names that do not match them."""
    parameters = [each for group in param_groups for each in group["params"]]
    if named is None:
        return {each: f"{prefix}.noname.{i}" for i, each in enumerate(parameters)}
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    names = [name for name, _ in pairs]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(twice)
        )
    found = {parameter: name for name, parameter in pairs}
    unnamed = [each for each in parameters if each not in found]
    if unnamed:
        shapes = ", ".join(str(tuple(each.shape)) for each in unnamed)
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Shapes of these: {shapes}"
        )
    return {each: found[each] for each in parameters}


@final
class GradientReducer:
    """A reducer of the gradients of one optimizer's parameters."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        names: dict[Tensor, str],
        *,
        compression: type[Compressor],
        passes: int,
        op: int,
        predivide: float,
        groups: int | Sequence[Sequence[Tensor]] | None,
        sparse_as_dense: bool,
        process_set: ProcessSet,
        prefix: str,
    ) -> None:
        self._names, self._compression, self._passes, self._op = names, compression, passes, op
        self._predivide, self._sparse_as_dense = predivide, sparse_as_dense
        self._process_set, self._prefix = process_set, prefix
        self._parameters: list[Tensor] = []
        self._left: dict[Tensor, int] = {}
        self._handles: dict[Tensor, tuple[Any, Any, Tensor]] = {}
        self._ready: dict[int, set[Tensor]] = {}
        self._unsent = 0
        self._active = process_set.included() and process_set.size() > 1
        self.add(parameters)
        self._groups = _groups_of(groups, self._parameters)
        self._group_of = {each: i for i, group in enumerate(self._groups) for each in group}

    @property
    def in_flight(self) -> bool:
        """Return whether gradients are being reduced."""
        return bool(self._handles)

    def add(self, parameters: Sequence[Tensor]) -> None:
        """Add parameters whose gradients to reduce."""
        for parameter in parameters:
            if parameter.requires_grad:
                self._names.setdefault(parameter, f"{self._prefix}.noname.{len(self._names)}")
                self._parameters.append(parameter)
                self._left[parameter] = self._passes
                if self._active:
                    parameter.register_post_accumulate_grad_hook(self._computed)  # type: ignore[no-untyped-call]

    def set_passes(self, passes: int) -> None:
        """Set the number of backward passes before gradients are reduced."""
        self._passes = passes
        self._left = dict.fromkeys(self._left, passes)

    def finish(self) -> None:
        """Wait until all gradients are reduced; those not computed count as zero."""
        if self._active:
            self._begin_missing()
            flush()
            # After an error, too, no handle may be left in flight.
            handles, self._handles = self._handles, {}
            for parameter, (handle, context, sent) in handles.items():
                self._take(parameter, synchronize(handle), context, sent)
        self._left = dict.fromkeys(self._left, self._passes)
        self._ready.clear()

    def drop(self) -> None:
        """Drop the gradients in flight, such as after the loss of a rank."""
        self._handles.clear()
        self._left = dict.fromkeys(self._left, self._passes)
        self._ready.clear()

    def _take(self, parameter: Tensor, reduced: Tensor, context: Any, sent: Tensor) -> None:
        gradient = parameter.grad
        result = self._compression.decompress(reduced, context)
        if gradient is None or result.is_sparse:
            parameter.grad = result
        elif result.data_ptr() != gradient.data_ptr():
            with torch.no_grad():
                gradient.copy_(result)

    def _begin_missing(self) -> None:
        for parameter in self._parameters:
            if parameter not in self._handles:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._begin(parameter)

    def _computed(self, parameter: Tensor) -> None:
        """Record that backward has computed or accumulated a gradient."""
        if parameter in self._handles or self._left[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._left[parameter] -= 1
        if self._left[parameter]:
            return
        group = self._group_of.get(parameter)
        if group is None:
            self._begin(parameter)
            return
        ready = self._ready.setdefault(group, set())
        ready.add(parameter)
        if len(ready) == len(self._groups[group]):
            for each in self._groups[group]:
                self._begin(each)

    def _begin(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        name = f"gradient.{self._names[parameter]}"
        if gradient.is_sparse and not self._sparse_as_dense:
            handle: Any = sparse_allreduce_async(gradient, name, self._op, self._process_set)
            self._handles[parameter] = handle, gradient.dtype, gradient
            return
        if gradient.is_sparse:
            gradient = parameter.grad = gradient.to_dense()
        sent, context = self._compression.compress(gradient)
        self._unsent += sent.numel() * sent.element_size()
        last = len(self._handles) + 1 == len(self._parameters)
        wake = last or self._unsent >= SEND_BYTES
        handle = start(self._work(parameter, name, sent), wake=wake)
        if wake:
            self._unsent = 0
        self._handles[parameter] = handle, context, sent

    def _work(self, parameter: Tensor, name: str, sent: Tensor) -> Any:
        group = self._group_of.get(parameter)
        size = 1 if group is None else len(self._groups[group])
        averaged = self._op == Average
        return work_of(
            "allreduce",
            sent,
            name,
            self._process_set,
            target=sent,
            op=self._op,
            prescale=1.0 / self._predivide if averaged else 1.0,
            postscale=self._predivide if averaged else 1.0,
            group="" if group is None else f"{self._prefix}.{group}",
            group_size=size,
        )


def _groups_of(
    groups: int | Sequence[Sequence[Tensor]] | None, parameters: Sequence[Tensor]
) -> list[list[Tensor]]:
    """Return the groups of parameters that are reduced together; the others are reduced alone."""
    if groups is None or groups == 0:
        return []
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups={groups}: {_GROUPS}")
        count = min(groups, len(parameters))
        return split_list(list(parameters), count)
    if not all(isinstance(group, list | tuple) for group in groups):
        raise ValueError(f"groups: {_GROUPS}")
    chosen = [[each for each in group if each in set(parameters)] for group in groups]
    members = [each for group in chosen for each in group]
    if len(set(members)) < len(members):
        raise ValueError("a parameter is in more than one of the groups")
    return [group for group in chosen if group]
