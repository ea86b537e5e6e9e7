"""A callback that writes histograms, the graph, images, text and PR curves to TensorBoard."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from flambeau.data.batch import Batch
from flambeau.errors import DataError, MissingDependencyError, ModelError
from flambeau.training.callbacks import Callback, TrainingView

#: A folder of its own, since TensorBoard follows only the newest event file of a folder.
FOLDER = "extras"
MOST_IMAGES = 16


@final
class TensorBoardExtras(Callback):
    """Callback that writes to the run's `tensorboard/extras`, on the first worker only.

    `histograms_every` steps: all weights, and the gradients of this worker's part of the batch.
    `graph`: the model as traced with the first batch. `images`: a column [rows, channels, h, w] (or
    without channels), some of which are shown every `images_every` steps. `text`: shown once, by
    tag. `pr_curves`: the column of a 0/1 label; after each epoch, its precision and recall on the
    last batch.
    """

    def __init__(
        self,
        *,
        histograms_every: int | None = None,
        graph: bool = False,
        images: str | None = None,
        images_every: int = 1000,
        text: Mapping[str, str] | None = None,
        pr_curves: str | None = None,
    ) -> None:
        self._histograms_every, self._graph = histograms_every, graph
        self._images, self._images_every = images, images_every
        self._text, self._pr_curves = dict(text or {}), pr_curves
        self._gradients: dict[str, Tensor] = {}
        self._hooks: list[Any] = []
        self._writer: Any = None

    def on_start(self, view: TrainingView) -> None:
        """Open the event file, write the text and register hooks for the gradients."""
        if not view.first:
            return
        self._writer = _open_writer(str(view.run_dir / "tensorboard" / FOLDER))
        for tag, text in self._text.items():
            self._writer.add_text(tag, text, view.step)
        if self._histograms_every is not None:
            self._hooks = [
                _watch(parameter, partial(self._keep, view, name))
                for name, parameter in view.model.named_parameters()
                if parameter.requires_grad
            ]

    def on_step_end(self, view: TrainingView) -> None:
        """Write the graph, histograms and images that are due after this step."""
        if self._writer is None or view.batch is None:
            return
        if self._graph:
            self._graph = False
            self._write_graph(view, view.batch)
        if self._histograms_due(view.step):
            self._write_histograms(view)
        if self._images is not None and (view.step - 1) % self._images_every == 0:
            shown = _as_images(view.batch, self._images)
            self._writer.add_images(self._images, shown, view.step)

    def on_epoch_end(self, view: TrainingView) -> None:
        """Write the PR curve."""
        if self._writer is not None and self._pr_curves is not None and view.batch is not None:
            label = _column(view.batch, self._pr_curves, "pr_curves").reshape(-1)
            scores = _probabilities(_output(view, view.batch), label)
            self._writer.add_pr_curve(self._pr_curves, label, scores, view.step)

    def on_end(self, view: TrainingView) -> None:
        """Close the event file."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _histograms_due(self, step: int) -> bool:
        return self._histograms_every is not None and step % self._histograms_every == 0

    def _keep(self, view: TrainingView, name: str, gradient: Tensor) -> None:
        """Add a gradient to those of the current step, if they will be shown."""
        if not self._histograms_due(view.step + 1):
            return
        before = self._gradients.get(name)
        kept = gradient.detach()
        self._gradients[name] = kept.clone() if before is None else before + kept

    def _write_histograms(self, view: TrainingView) -> None:
        for name, parameter in view.model.named_parameters():
            self._histogram(f"weights/{name}", parameter.detach(), view.step)
        for name, gradient in self._gradients.items():
            self._histogram(f"gradients/{name}", gradient, view.step)
        self._gradients = {}

    def _histogram(self, tag: str, tensor: Tensor, step: int) -> None:
        values = (tensor.coalesce().values() if tensor.is_sparse else tensor).float()
        finite = values[torch.isfinite(values)]
        if finite.numel():
            self._writer.add_histogram(tag, finite, step)

    def _write_graph(self, view: TrainingView, batch: Batch) -> None:
        positional, named = _arguments(view, batch)
        values = (*positional, *named.values())
        if not all(isinstance(value, Tensor) for value in values):
            raise ModelError("graph=True needs a forward() that takes tensors only; leave it out")
        traced = _ByPosition(view.model, len(positional), tuple(named))
        with _quiet(view.model), warnings.catch_warnings():
            # TensorBoard's only way to a graph is a tracer that torch deprecates.
            warnings.filterwarnings("ignore", r".*torch\.jit\.", DeprecationWarning)
            self._writer.add_graph(traced, values)


def _watch(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> Any:
    return parameter.register_hook(hook)  # type: ignore[no-untyped-call]


class _ByPosition(nn.Module):
    """Wrapper that passes named arguments by position, since tracers pass only positional ones."""

    def __init__(self, model: nn.Module, positional: int, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self._positional, self._names = positional, names

    def forward(self, *values: Tensor) -> Any:
        """Return the model's output."""
        named = dict(zip(self._names, values[self._positional :], strict=True))
        return self.model(*values[: self._positional], **named)


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """Use the model without changing its statistics or the random number generators."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        model.train(training)


def _arguments(view: TrainingView, batch: Batch) -> tuple[list[Any], dict[str, Any]]:
    assert view.arguments is not None
    return view.arguments(batch)


def _output(view: TrainingView, batch: Batch) -> Any:
    positional, named = _arguments(view, batch)
    with _quiet(view.model):
        return view.model(*positional, **named)


def _probabilities(output: Any, label: Tensor) -> Tensor:
    """Return a score from 0 to 1 per row; applying a sigmoid keeps the order."""
    if not isinstance(output, Tensor):
        raise ModelError(
            f"pr_curves= needs a model that gives a tensor, not {type(output).__name__}"
        )
    if output.numel() == 2 * label.numel() and output.shape[-1] == 2:
        # Logits of two classes, or logarithms of their probabilities.
        return torch.sigmoid((output[..., 1] - output[..., 0]).reshape(-1).float())
    if output.numel() != label.numel():
        raise ModelError(
            "pr_curves= needs a model with one output per row, or two classes [rows, 2]; it gives "
            f"{list(output.shape)} for {label.numel()} labels: leave pr_curves out"
        )
    scores = output.reshape(-1).float()
    inside = bool(((scores >= 0) & (scores <= 1)).all())
    return scores if inside else torch.sigmoid(scores)


def _column(batch: Batch, name: str, setting: str) -> Tensor:
    column = batch.columns.get(name)
    if not isinstance(column, Tensor):
        raise DataError(
            f"{setting}='{name}' is not a column of numbers of the batch; it has {list(batch)}"
        )
    return column


def _as_images(batch: Batch, name: str) -> Tensor:
    """Return the first images, scaled to numbers from 0 to 1, whatever their normalisation."""
    images = _column(batch, name, "images")[:MOST_IMAGES].float()
    images = images.unsqueeze(1) if images.dim() == 3 else images
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        raise DataError(
            f"images='{name}' must be [rows, 1 or 3 channels, h, w]; it is {list(images.shape)}"
        )
    low, high = torch.aminmax(images)
    return (images - low) / (high - low).clamp(min=1e-12)


def _open_writer(directory: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"TensorBoardExtras needs {error.name}, which is not installed; pip install tensorboard"
        ) from error
    make: Callable[[str], Any] = SummaryWriter
    return make(directory)
