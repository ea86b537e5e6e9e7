"""The network of an estimator, as the user gave it, and the module that is built from it."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from flambeau.checkpoint import user_code
from flambeau.checkpoint.user_code import Packer
from flambeau.config import CodeRef
from flambeau.errors import ModelError
from flambeau.spark.params import is_json


@final
@dataclass(frozen=True)
class Network:
    """An nn.Module, or a builder of one with `params`; its features are reshaped to `shape`."""

    model: Any
    params: dict[str, Any]
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module) and self.params:
            raise ModelError("modelParams are for a model that is a class, not for an nn.Module")
        if not callable(self.model) and not isinstance(self.model, str):
            raise ModelError(
                f"model is {self.model!r}; give an nn.Module, a class or function that builds one, "
                "or 'package.module:Name'"
            )

    def __call__(self) -> nn.Module:
        """Return a separate module."""
        return shaped(self._module(), self.shape)

    def for_training(self) -> Any:
        """Return the module itself, or the builder that the workers call."""
        return self() if isinstance(self.model, nn.Module) else self

    def pack(self, packer: Packer) -> CodeRef:
        """Return a reference to the code: by import path if there is one, else by value."""
        if isinstance(self.model, nn.Module):
            return packer.add(self.model, "model")
        path = self.model if isinstance(self.model, str) else user_code.importable_path(self.model)
        if path is not None and is_json(self.params):
            return CodeRef(path=_with_colon(path), args=self.params, call=True)
        return packer.add(Network(self.model, self.params), "model")

    @property
    def by_value(self) -> bool:
        """Return whether the code itself is stored, since it cannot be imported elsewhere."""
        if isinstance(self.model, str):
            return False
        kind = type(self.model) if isinstance(self.model, nn.Module) else self.model
        return user_code.importable_path(kind) is None

    def _module(self) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        model = self.model
        if isinstance(model, str):
            model = user_code.load(CodeRef(path=_with_colon(model)), directory=Path())
        return as_module(model(**self.params))


def as_module(found: Any) -> nn.Module:
    """Return the module, or call its builder; raise `ModelError` if the result is no module."""
    if not isinstance(found, nn.Module) and callable(found):
        found = found()
    if not isinstance(found, nn.Module):
        raise ModelError(f"the model is a {type(found).__name__}, not an nn.Module")
    return found


def _with_colon(path: str) -> str:
    """Return `package.module:Name`, also for `package.module.Name`."""
    return path if ":" in path else ":".join(path.rsplit(".", 1))


def shaped(module: nn.Module, shape: tuple[int, ...] | None) -> nn.Module:
    """Make the module reshape its first argument to [rows, *shape]; return the module."""
    if shape is not None:
        module.register_forward_pre_hook(_Reshape(shape), with_kwargs=True)
    return module


@final
class _Reshape:
    """Forward pre-hook, as an object that can be pickled with the module."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def __call__(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if given:
            return (self._apply(given[0]), *given[1:]), named
        first = next(iter(named))
        return given, {**named, first: self._apply(named[first])}

    def _apply(self, features: Any) -> Tensor:
        if not isinstance(features, Tensor):
            raise ModelError("inputShape is for features that are numbers, not for ids")
        try:
            return features.reshape(len(features), *self._shape)
        except RuntimeError as error:
            size = features[0].numel() if len(features) else 0
            raise ModelError(
                f"inputShape={list(self._shape)} does not fit rows of {size} numbers"
            ) from error
