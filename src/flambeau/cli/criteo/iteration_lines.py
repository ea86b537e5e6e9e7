"""Progress lines in the format of the reference DLRM, for programs that parse them."""

import math
import time
from typing import TYPE_CHECKING, Any, final

from flambeau.errors import ConfigError
from flambeau.training.callbacks import Callback, TrainingView

if TYPE_CHECKING:
    from torch import Tensor


@final
class IterationLines(Callback):
    """Printer of `[rank] Finished training it 16/150 of epoch 0, 439.65 ms/it, loss ..., ...`.

    A line is printed every `every` steps, with the mean loss and accuracy of this worker's rows
    since the previous one, for a model whose output is one logit per row. `rows` is the number of
    rows in an epoch, if it is known, from which the number of steps is computed; `label` is the
    column that is above 0 for a click.
    """

    def __init__(self, every: int, label: str = "label", rows: int | None = None) -> None:
        if every < 1:
            raise ConfigError(f"every={every}: give at least 1")
        self._every, self._label, self._epoch_rows = every, label, rows
        self._steps: int | None = None
        self._outputs: list[Tensor] = []
        self._epoch = 0
        self._first = 0
        self._clear()

    def on_start(self, view: TrainingView) -> None:
        """Start to collect the outputs of the model."""
        self._epoch, self._first = view.epoch, view.step
        view.model.register_forward_hook(self._watch)
        self._clear()

    def on_step_end(self, view: TrainingView) -> None:
        """Count the rows of the step, and print a line if one is due."""
        if view.epoch != self._epoch:
            self._epoch, self._first = view.epoch, view.step - 1
        if self._steps is None and self._epoch_rows and view.batch is not None:
            self._steps = math.ceil(self._epoch_rows / (view.batch.size * view.workers))
            self._first = view.epoch * self._steps  # correct even if the training was resumed
        self._count(view)
        number = view.step - self._first
        if number % self._every == 0:
            self._print(view, number)

    def _watch(self, model: Any, given: Any, output: Any) -> None:
        from torch import Tensor  # only workers run this, and they have loaded torch

        if model.training and isinstance(output, Tensor):
            self._outputs.append(output.detach())

    def _count(self, view: TrainingView) -> None:
        import torch

        outputs, self._outputs = self._outputs, []
        self._steps_counted += 1
        self._loss += view.loss
        labels = None if view.batch is None else view.batch.columns.get(self._label)
        if not outputs or not isinstance(labels, torch.Tensor):
            return
        logits = torch.cat([output.reshape(-1) for output in outputs])
        if logits.shape[0] == labels.shape[0]:
            right = (logits > 0) == (labels.reshape(-1).to(logits.device) > 0)
            self._right += int(right.sum())
            self._rows += int(logits.shape[0])

    def _print(self, view: TrainingView, number: int) -> None:
        milliseconds = 1000 * (time.perf_counter() - self._began) / self._steps_counted
        of = "" if self._steps is None else f"/{self._steps}"
        line = (
            f"[{view.rank}] Finished training it {number}{of} of epoch {view.epoch}, "
            f"{milliseconds:.2f} ms/it, loss {self._loss / self._steps_counted:.6f}"
        )
        if self._rows:
            line += f", accuracy {100 * self._right / self._rows:.3f} %"
        print(line, flush=True)
        self._clear()

    def _clear(self) -> None:
        self._loss, self._steps_counted = 0.0, 0
        self._right = self._rows = 0
        self._began = time.perf_counter()
