"""Loading of a checkpoint's weights into a model: all of them, or those that fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from flambeau.errors import ModelError


@dataclass(frozen=True)
class LoadReport:
    """Names of weights that were loaded, or that one side lacks, or whose shapes differ.

    `missing` ones are not in the checkpoint, `unexpected` ones not in the model.

    An entry of `mismatched` contains both shapes.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether all weights of the model and of the checkpoint match."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        parts = [(part.name, getattr(self, part.name)) for part in fields(self)]
        return "\n".join(f"{name}: {', '.join(names)}" for name, names in parts if names)


def load_weights(
    model: nn.Module, weights: Mapping[str, Tensor], pattern: str | Sequence[str] | None = None
) -> LoadReport:
    """Copy the weights that fit into the model; return a report on all weights.

    With `pattern` (`"encoder.*"`, or several), only names that match a pattern are considered.
    """
    report = _compare(model, weights, pattern)
    model.load_state_dict({name: weights[name] for name in report.loaded}, strict=False)
    return report


def load_all_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy all weights into the model, or raise `ModelError` and leave the model unchanged."""
    report = _compare(model, weights, None)
    if not report.complete:
        misfits = str(LoadReport((), report.missing, report.unexpected, report.mismatched))
        raise ModelError(
            f"the checkpoint does not fit the model {type(model).__name__}:\n{misfits}\n"
            "Use the model it was written with, or load only the weights that fit"
        )
    model.load_state_dict(dict(weights))


def _compare(
    model: nn.Module, weights: Mapping[str, Tensor], pattern: str | Sequence[str] | None
) -> LoadReport:
    own = {name: value for name, value in model.state_dict().items() if _matches(name, pattern)}
    given = [name for name in weights if _matches(name, pattern)]
    shared = [name for name in own if name in weights]
    differing = [name for name in shared if not _fits(own[name], weights[name])]
    return LoadReport(
        loaded=tuple(name for name in shared if name not in differing),
        missing=tuple(name for name in own if name not in weights),
        unexpected=tuple(name for name in given if name not in own),
        mismatched=tuple(_mismatch(name, own[name], weights[name]) for name in differing),
    )


def _matches(name: str, pattern: str | Sequence[str] | None) -> bool:
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return patterns is None or any(fnmatchcase(name, each) for each in patterns)


def _fits(own: Tensor, given: Tensor) -> bool:
    # A lazy parameter has no shape yet and takes that of the loaded tensor.
    return bool(is_lazy(own)) or own.shape == given.shape


def _mismatch(name: str, own: Tensor, given: Tensor) -> str:
    return f"{name} {list(given.shape)} in the checkpoint, {list(own.shape)} in the model"
