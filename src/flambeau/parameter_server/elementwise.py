"""A check that an optimizer updates each weight on its own, so that weights can be split."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flambeau.config.optimizer import DENSE_OPTIMIZERS
from flambeau.errors import ModelError
from flambeau.parameter_server.dense_layout import DenseLayout, DenseParameter, Options
from flambeau.parameter_server.dense_range import DenseRange, MakeOptimizer
from flambeau.parameter_server.fusing import fuse

_SHAPE = (4, 6)
_NUMEL = 24
_LEARNING_RATE = 0.01
#: Gradient scales, one step each; large gradients reveal clipping, small ones show its absence.
_SCALES = (0.01, 1.0, 100.0, 1.0, 0.1)
#: The step before which the state is saved and cut into other ranges.
_RELOAD = 3


def require_element_wise(make: MakeOptimizer, groups: Sequence[Options] = ({},)) -> None:
    """Raise `ModelError` unless the optimizer treats a matrix as it treats its parts on servers.

    It is tested with some steps on small matrices, with the options of each of `groups`.
    """
    options: list[Options] = [{**group, "lr": _LEARNING_RATE} for group in groups]
    numbers = torch.randn(
        len(_SCALES) + 1,
        *(len(options), *_SHAPE),
        generator=torch.Generator().manual_seed(0),
        dtype=torch.float64,
    )
    matrices = [nn.Parameter(matrix.clone()) for matrix in numbers[0]]
    whole = make(
        [{"params": [matrix], **group} for matrix, group in zip(matrices, options, strict=True)]
    )
    fuse(whole)
    name = type(whole).__name__
    try:
        _step_whole(whole, matrices, numbers)
        in_parts = _in_parts(make, options, numbers)
    except Exception as error:
        raise _refusal(name, f"it fails on a part of a weight: {error}") from error
    expected = torch.cat([matrix.detach().reshape(-1) for matrix in matrices])
    if not torch.allclose(expected, in_parts, rtol=1e-9, atol=1e-12, equal_nan=True):
        raise _refusal(name, "its update of a weight depends on others")


def _step_whole(
    optimizer: torch.optim.Optimizer, matrices: list[nn.Parameter], numbers: Tensor
) -> None:
    for scale, gradients in zip(_SCALES, numbers[1:], strict=True):
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.grad = gradient * scale
        optimizer.step()


def _in_parts(make: MakeOptimizer, options: list[Options], numbers: Tensor) -> Tensor:
    """Return the result of the same steps with matrices cut in two and, after a reload, three."""
    parameters = tuple(DenseParameter(str(group), _NUMEL, group) for group in range(len(options)))
    layout = DenseLayout(parameters, "float64", tuple(options))
    servers = _servers(layout, 2 * len(options), make)
    for server in servers:
        server.initialise(numbers[0].reshape(-1).numpy()[server.start : server.stop])
    for step, (scale, gradients) in enumerate(zip(_SCALES, numbers[1:], strict=True)):
        if step == _RELOAD:
            dumps = [server.dump() for server in servers]
            servers = _servers(layout, 3 * len(options), make)
            for server in servers:
                server.load(dumps)
        flat = (gradients * scale).reshape(-1).numpy()
        for server in servers:
            server.apply(flat[server.start : server.stop], set(), [_LEARNING_RATE] * len(options))
    return torch.cat([torch.from_numpy(server.values) for server in servers])


def _servers(layout: DenseLayout, count: int, make: MakeOptimizer) -> list[DenseRange]:
    return [DenseRange(layout, start, stop, make) for start, stop in layout.ranges(count)]


def _refusal(name: str, reason: str) -> ModelError:
    return ModelError(
        f"optimizer {name} is not element-wise ({reason}), so its state cannot be cut into ranges "
        f"for servers; use AllReduce, or one of {', '.join(DENSE_OPTIMIZERS)}"
    )
