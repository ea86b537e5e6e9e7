"""Dry run of model, data and loss together, before the training."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.config.plural import number_of
from flambeau.data.arrow_columns import as_columns
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.jagged import Jagged
from flambeau.data.loader import Transform, in_order
from flambeau.data.source import IndexedSource, IterableSource, Source
from flambeau.data.sources.engine_frames import EngineFrameSource
from flambeau.errors import DataError, ModelError, UserError
from flambeau.inference.arguments import FAULTS
from flambeau.runs.number_inputs import Run, find_numbers, suited
from flambeau.training.losses import Loss

ROWS = 2
CHUNK = 1 << 20


def dry_run(
    model: nn.Module,
    source: Source,
    binder: Binder,
    loss: Loss,
    transform: Transform | None,
    name: str = "train",
) -> Binder:
    """Run two rows through model and loss; return the binder that suits the model.

    This detects mismatches before the first step, and integers that the model takes as numbers.
    Lazy modules get their shapes; otherwise the model is unchanged. Iterators are not read, since
    they might not support being read twice.
    """
    if isinstance(source, IterableSource):
        return binder
    first = partial(_first_rows, source, transform, _device(model))
    batch = first(binder)
    if batch is None and isinstance(source, EngineFrameSource) and source.shards():
        return binder  # all of its rows are with other workers
    if batch is None:
        raise DataError("the data has no rows")

    def run(batch: Batch) -> Tensor:
        positional, named = binder.arguments(batch)
        output: Tensor = model(*positional, **named)
        loss(output, batch, binder.label(batch), binder.weight(batch))
        return output

    with _without_a_trace(model):
        try:
            output = run(batch)
        except FAULTS as error:
            numbers = find_numbers(run, binder, batch)
            if numbers is None:
                raise _explained(error, model, binder, batch, name) from error
            binder = binder.with_numbers(numbers)
            again = first(binder)
            assert again is not None
            output = run(again)
    if loss.name in ("cross_entropy", "nll") and isinstance(source, IndexedSource):
        _check_classes(source, binder, output, name)
    return binder


def suit(
    model: Callable[..., Any], source: Source, binder: Binder, transform: Transform | None
) -> Binder:
    """Return the binder that training found to suit the model, for a model in use on the CPU."""
    if isinstance(source, IterableSource):
        return binder
    return suited(runner(model, binder), binder, partial(_first_rows, source, transform, None))


def runner(model: Callable[..., Any], binder: Binder) -> Run:
    """Return a function that applies a model to a batch, without side effects."""

    def run(batch: Batch) -> Any:
        positional, named = binder.arguments(batch)
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            return model(*positional, **named)

    return run


@contextmanager
def _without_a_trace(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        model.train(training)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _first_rows(
    source: Source, transform: Transform | None, device: torch.device | None, binder: Binder
) -> Batch | None:
    batch = next(in_order(source, binder, ROWS), None)
    if batch is None:
        return None
    batch = batch if transform is None else transform(batch)
    return batch if device is None else batch.to(device)


def _explained(
    error: Exception, model: nn.Module, binder: Binder, batch: Batch, name: str
) -> Exception:
    """Return a helpful error for one that the model's own code raises on unsuitable rows."""
    if isinstance(error, UserError | AssertionError):
        return error
    positional, named = binder.arguments(batch)
    return ModelError(
        f"the model fails on the first rows of {name}=: {error} ({_where(error)}); its inputs "
        f"are {_shapes(positional, named)}{_bags_hint(model, [*positional, *named.values()])}"
    )


def _bags_hint(model: nn.Module, arguments: list[object]) -> str:
    """Return a hint if rows with several ids are used in a lookup without pooling."""
    bags = [x for x in arguments if isinstance(x, Jagged) and x.row_shape is None]
    columns = ", ".join(f"'{column}'" for x in bags for column in x.names)
    if not columns:
        return ""
    from flambeau.inference.lookup_sites import rows_of_sites  # loads Numba, which is rarely needed

    tables = {x.spec.name for x in rows_of_sites(model) if x.pooling == "none"}
    if not tables:
        return ""
    return (
        f". A row may have several ids in {columns}, for which a SparseEmbedding without pooling "
        f"gives (rows, mask): give that of table '{min(tables)}' pooling='sum', 'mean' or 'max'"
    )


def _where(error: Exception) -> str:
    """Return the last line of the user's own code in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    library = str(Path(torch.__file__).parent)
    own = [frame for frame in frames if not frame.filename.startswith(library)]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}"


def _check_classes(source: IndexedSource, binder: Binder, output: Tensor, name: str) -> None:
    """Check all labels of data in memory against the number of the model's classes."""
    labels = binder.label_columns()
    if not source.in_memory or len(labels) != 1:
        return
    classes = output.shape[1]
    for start in range(0, len(source), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(source)))
        label = binder.as_label(labels[0], as_columns(source.take(rows, labels))[labels[0]])
        assert isinstance(label, Tensor)
        label = label if label.is_floating_point() else label.long()
        bad = ((label < 0) | (label >= classes)).nonzero()
        if len(bad):
            row = int(bad[0, 0])
            raise DataError(
                f"label {label[row].item():g} in row {start + row} of column '{labels[0]}' of "
                f"{name}= does not fit: the model gives {number_of(classes, 'class', 'classes')}, "
                f"so labels are 0 to {classes - 1}; map others with label_map={{label: class}}"
            )


def _shapes(positional: list[object], named: dict[str, object]) -> str:
    items = [*enumerate(positional), *named.items()]
    return ", ".join(f"{name}: {_shape(value)}" for name, value in items) or "none"


def _shape(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, Jagged):
        return f"a Jagged of {number_of(len(value), 'row')}"
    return f"a {type(value).__name__}"
