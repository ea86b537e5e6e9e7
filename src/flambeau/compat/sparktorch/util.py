"""Networks with their training settings, as text."""

import base64
import binascii
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import cloudpickle
from torch import nn
from torch.optim import Optimizer

from flambeau.errors import ConfigError


@final
@dataclass(frozen=True)
class TorchObject:
    """A network or its class, with its criterion and its optimizer."""

    model: nn.Module | type[nn.Module]
    criterion: nn.Module
    optimizer: type[Optimizer]
    optimizer_params: dict[str, Any] = field(default_factory=dict)
    model_parameters: dict[str, Any] = field(default_factory=dict)


def serialize_torch_obj(
    model: nn.Module, criterion: nn.Module, optimizer: type[Optimizer], **kwargs: Any
) -> str:
    """Return the text for `SparkTorch(torchObj=...)`; `kwargs` are for the optimizer class."""
    return to_text(TorchObject(model, criterion, optimizer, kwargs))


def serialize_torch_obj_lazy(
    model: type[nn.Module],
    criterion: type[nn.Module],
    optimizer: type[Optimizer],
    optimizer_params: Mapping[str, Any] | None = None,
    model_parameters: Mapping[str, Any] | None = None,
) -> str:
    """Return the same from classes: the network is built on the workers."""
    optimizer_args, model_args = dict(optimizer_params or {}), dict(model_parameters or {})
    return to_text(TorchObject(model, criterion(), optimizer, optimizer_args, model_args))


def to_text(obj: Any) -> str:
    """Return an object as text; it contains classes of a script or notebook by value."""
    return base64.b64encode(cloudpickle.dumps(obj)).decode()


def from_text(text: str, kind: type[Any], advice: str) -> Any:
    """Return the object in a text. This runs code, so the text must be from a trusted source."""
    try:
        found = pickle.loads(base64.b64decode(text, validate=True)) if text else None
    except (binascii.Error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise ConfigError(f"this text cannot be read: {advice}") from error
    if not isinstance(found, kind):
        raise ConfigError(f"{'nothing' if found is None else 'something else'} given: {advice}")
    return found
