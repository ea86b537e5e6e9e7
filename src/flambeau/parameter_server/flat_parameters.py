"""A worker's trained parameters in one piece of memory."""

from itertools import accumulate, pairwise
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flambeau.errors import ModelError, ProtocolError
from flambeau.parameter_server.dense_layout import DenseLayout, trained_parameters

Array = np.ndarray[Any, Any]


@final
class FlatParameters:
    """Flat tensor of which all parameters that `optimizer` trains become views.

    The parameters stay the same objects; only their memory moves.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.layout = DenseLayout.of(model, optimizer)
        self._parameters = trained_parameters(model, optimizer)
        self._flat = _flattened(self._parameters)
        self._zeros: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self._flat.device

    @property
    def values(self) -> Array:
        """All values [numel]: the parameters' own memory, or a copy if they are on a GPU."""
        return self._flat.cpu().numpy()

    def load(self, start: int, values: Array) -> None:
        """Overwrite the values from `start` on with a copy of `values`."""
        stop = start + len(values)
        if not 0 <= start <= stop <= len(self._flat):
            raise ProtocolError(f"values {start} to {stop} of a model with {len(self._flat)}")
        if self._flat.device.type == "cpu":
            self._flat.numpy()[start:stop] = values
        else:
            self._flat[start:stop] = torch.tensor(values)

    def gradient(self, out: Array | None = None) -> tuple[Array, list[int]]:
        """Return the gradients [numel], and the indices of the parameters without one (zeros here).

        They are written into `out` if it is given (of the parameters' dtype), else into new memory.
        """
        parts = [
            self._flat_gradient(name, parameter) for name, parameter in self._parameters.items()
        ]
        absent = [
            index
            for index, parameter in enumerate(self._parameters.values())
            if parameter.grad is None
        ]
        return self._joined(parts, out), absent

    def forget_gradients(self) -> None:
        """Set all gradients to None, as `zero_grad` does, without the optimizer's overhead."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def _flat_gradient(self, name: str, parameter: nn.Parameter) -> Tensor:
        gradient = parameter.grad
        if gradient is None:
            return self._no_gradient(parameter.numel())
        if gradient.layout != torch.strided:
            raise ModelError(
                f"parameter '{name}' has a sparse gradient; use SparseEmbedding in its place, or "
                "sparse=False"
            )
        return gradient.reshape(-1)

    def _no_gradient(self, numel: int) -> Tensor:
        if self._zeros is None or len(self._zeros) < numel:
            self._zeros = torch.zeros(numel, dtype=self._flat.dtype, device=self._flat.device)
        return self._zeros[:numel]

    def _joined(self, parts: list[Tensor], out: Array | None) -> Array:
        if out is None:
            return torch.cat(parts).cpu().numpy()
        if self._flat.device.type == "cpu":
            torch.cat(parts, out=torch.from_numpy(out))
        else:
            torch.from_numpy(out).copy_(torch.cat(parts))
        return out


def _flattened(parameters: dict[str, nn.Parameter]) -> Tensor:
    """Copy the values to new memory, and make the parameters views of it."""
    devices = {parameter.device for parameter in parameters.values()}
    if len(devices) != 1:
        raise ModelError(
            f"the trained parameters are on {len(devices)} devices; a parameter server needs them "
            "on one"
        )
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters.values()])
    ends = accumulate((parameter.numel() for parameter in parameters.values()), initial=0)
    for parameter, (start, stop) in zip(parameters.values(), pairwise(ends), strict=True):
        parameter.data = flat[start:stop].view(parameter.shape)
    return flat
