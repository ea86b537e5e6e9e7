"""A first look at model, data and loss together, before anything is trained."""

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.data import IndexedSource, IterableSource, Source
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder
from flambeau.data.loader import in_order
from flambeau.data.sources.spooled import SpooledSource
from flambeau.errors import DataError, ModelError
from flambeau.training.losses import Loss

ROWS = 2
CHUNK = 1 << 20


def rehearse(
    model: nn.Module,
    source: Source,
    binder: Binder,
    loss: Loss,
    transform: Callable[[Batch], Batch] | None,
    name: str = "train",
) -> None:
    """Run two rows through model and loss, without a trace; lazy modules get their shapes.

    Finds what does not fit before the first step. An iterator is left alone: it may not like to be
    read twice.
    """
    if isinstance(source, IterableSource):
        return
    batch = next(in_order(source, binder, ROWS), None)
    if batch is None and isinstance(source, SpooledSource) and source.shards():
        return  # all of it is with other workers
    if batch is None:
        raise DataError("the data has no rows")
    output = _forward(model, binder, batch if transform is None else transform(batch), loss, name)
    if loss.name in ("cross_entropy", "nll") and isinstance(source, IndexedSource):
        _check_classes(source, binder, output, name)


def _forward(model: nn.Module, binder: Binder, batch: Batch, loss: Loss, name: str) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    batch = batch.to(device)
    positional, named = binder.arguments(batch)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output: Tensor = model(*positional, **named)
            loss(output, batch, binder.label(batch), binder.weight(batch))
    except (RuntimeError, TypeError, IndexError) as error:
        raise ModelError(
            f"the model fails on the first rows of {name}=: {error} ({_where(error)}); its inputs "
            f"are {_shapes(positional, named)}"
        ) from error
    finally:
        model.train(training)
    return output


def _where(error: Exception) -> str:
    """The last line of the user's own code on the way to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    library = str(Path(torch.__file__).parent)
    own = [frame for frame in frames if not frame.filename.startswith(library)]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}"


def _check_classes(source: IndexedSource, binder: Binder, output: Tensor, name: str) -> None:
    """All labels of data in memory against the classes that the model knows."""
    labels = binder.label_columns()
    if not source.in_memory or len(labels) != 1:
        return
    classes = output.shape[1]
    for start in range(0, len(source), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(source)))
        label = binder.as_label(labels[0], source.take(rows, labels)[labels[0]])
        assert isinstance(label, Tensor)
        label = label if label.is_floating_point() else label.long()
        bad = ((label < 0) | (label >= classes)).nonzero()
        if len(bad):
            row = int(bad[0, 0])
            raise DataError(
                f"label {label[row].item():g} in row {start + row} of column '{labels[0]}' of "
                f"{name}= does not fit: the model gives {classes} classes, so labels are 0 to "
                f"{classes - 1}; map others with label_map={{label: class}}"
            )


def _shapes(positional: list[object], named: dict[str, object]) -> str:
    items = [*enumerate(positional), *named.items()]
    return ", ".join(
        f"{name}: {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        for name, value in items
        if isinstance(value, Tensor)
    )
