"""All metrics of an evaluation, exact over all workers."""

from collections.abc import Sequence
from typing import Any, final

import msgspec
import numpy as np
from torch import Tensor

from flambeau.data.binding import GroupColumn, Label
from flambeau.errors import ModelError
from flambeau.strategies.group import Group
from flambeau.training.losses import IN_BATCH, Loss, TaskLosses, in_batch_label, task_outputs
from flambeau.training.metrics import Metric, build_metrics


class _Array(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@final
class MetricSet:
    """Named metrics; with several tasks each task has its own, named `task/metric`."""

    def __init__(self, names: Sequence[str], loss: Loss | None, exact_rows: int) -> None:
        self._names, self._loss, self._exact_rows = names, loss, exact_rows
        self._single = self._build(loss)
        self._tasks: dict[str, dict[str, Metric]] = {}

    def update(
        self, output: Any, label: Label, weight: Tensor | None, group: GroupColumn | None
    ) -> None:
        """Add one batch."""
        if self._loss is not None and self._loss.name == IN_BATCH and self._single:
            label = in_batch_label(output, label)
            if len(label) < 2:
                return  # a single item always ranks first
        if not self._single or label is None:
            return
        if isinstance(label, dict):
            outputs = task_outputs(output, label)
            for task, values in label.items():
                for metric in self._task(task).values():
                    metric.update(outputs[task], values, weight, group)
            return
        if not isinstance(output, Tensor):
            raise ModelError(
                f"metrics need the model to return a tensor, or label={{task: column}} with one "
                f"output per task; it returned {type(output).__name__}"
            )
        for metric in self._single.values():
            metric.update(output, label, weight, group)

    def results(self, group: Group) -> dict[str, float]:
        """Return the value of every metric over the rows of all workers."""
        gathered = [_decode(data) for data in group.gather(self.state())]
        self._prepare(sorted({name for states in gathered for name in states}))
        for name, metric in self._named().items():
            metric.merge([_unpack(states[name]) for states in gathered if name in states])
        return self.values()

    def state(self) -> bytes:
        """Return the accumulated state, for `add` in another process."""
        own = {name: _pack(metric.state()) for name, metric in self._named().items()}
        return msgspec.msgpack.encode(own)

    def add(self, state: bytes) -> None:
        """Add the state of another process."""
        states = _decode(state)
        self._prepare(list(states))
        for name, metric in self._named().items():
            if name in states:
                metric.add(_unpack(states[name]))

    def values(self) -> dict[str, float]:
        """Return the value of every metric over the rows that were added here."""
        return {name: metric.compute() for name, metric in self._named().items()}

    def _build(self, loss: Loss | None) -> dict[str, Metric]:
        name = loss.name if loss is not None else None
        return build_metrics(self._names, loss_name=name, exact_rows=self._exact_rows)

    def _task(self, task: str) -> dict[str, Metric]:
        if task not in self._tasks:
            losses = self._loss.tasks if isinstance(self._loss, TaskLosses) else {}
            self._tasks[task] = self._build(losses.get(task))
        return self._tasks[task]

    def _named(self) -> dict[str, Metric]:
        if not self._tasks:
            return self._single
        return {
            f"{task}/{name}": metric
            for task, metrics in self._tasks.items()
            for name, metric in metrics.items()
        }

    def _prepare(self, names: Sequence[str]) -> None:
        """Create the metrics of tasks that this worker, without rows, has not seen yet."""
        for name in names:
            if "/" in name:
                self._task(name.rsplit("/", 1)[0])


def _decode(data: bytes) -> dict[str, dict[str, _Array]]:
    return msgspec.msgpack.decode(data, type=dict[str, dict[str, _Array]])


def _pack(state: dict[str, Any]) -> dict[str, _Array]:
    return {
        name: _Array(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())
        for name, array in ((name, np.asarray(value)) for name, value in state.items())
    }


def _unpack(state: dict[str, _Array]) -> dict[str, Any]:
    return {
        name: np.frombuffer(array.data, dtype=array.dtype).reshape(array.shape)
        for name, array in state.items()
    }
