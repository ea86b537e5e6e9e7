"""Vectors of a trained model's items or users, from any data that `fit` accepts."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from flambeau.checkpoint import RunDirectory
from flambeau.config import Binding, JobSettings
from flambeau.data.binding import Binder
from flambeau.errors import ModelError
from flambeau.inference.shorthands import expand
from flambeau.inference.vector_files import export_vectors
from flambeau.runs import open_data
from flambeau.runs.dry_run import suit
from flambeau.runs.trained_run import load_model, open_given

Of = Literal["item", "user"]


def export_run_vectors(
    run: RunDirectory,
    settings: JobSettings,
    which: str,
    data: Any,
    out: str | Path,
    of: Of,
    id: str | None,
) -> int:
    """Write the model's vectors for the items or users of `data`; return the number of rows."""
    encode = _encoder(load_model(run, settings, which), of)
    source = open_given(run, settings, data)
    binding = _binding(settings.binding, encode, id)
    given = Binder(binding, encode, open_data.shape_of(source), expand=expand)
    binder = suit(encode, source, given, None)
    size = settings.evaluation_rows
    return export_vectors(encode, source, binder, Path(out), size, id)


def _encoder(model: nn.Module, of: Of) -> Callable[..., Tensor]:
    encode = getattr(model, f"{of}_vectors", None)
    if encode is None:
        raise ModelError(
            f"{type(model).__name__} has no method {of}_vectors(...), which gives vectors [rows, "
            "dim] for columns; TwoTower and SASRec have it"
        )
    return encode  # type: ignore[no-any-return]


def _binding(settings: Binding, encode: Callable[..., Tensor], id: str | None) -> Binding:
    """Return the training's binding, limited to inputs of `encode`; others are not needed."""
    taken = inspect.signature(encode).parameters
    inputs = settings.inputs
    used = {*taken, *([id] if id is not None else [])}
    if inputs is not None:
        given = inputs if isinstance(inputs, dict) else {}
        inputs = {name: columns for name, columns in given.items() if name in taken}
        for columns in inputs.values():
            used |= {columns} if isinstance(columns, str) else set(columns)
    crosses = {name: parts for name, parts in settings.crosses.items() if name in used}
    used |= {part for parts in crosses.values() for part in parts}
    hashed = {name: salt for name, salt in settings.hash.items() if name in used}
    keys = () if id is None else (id,)
    fill = settings.fill
    if isinstance(fill, dict):
        fill = {name: value for name, value in fill.items() if name in used}
    return Binding(inputs=inputs, keys=keys, hash=hashed, crosses=crosses, fill=fill)
