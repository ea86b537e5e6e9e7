"""The base classes of metrics, which accumulate on one worker and merge over all workers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor

from flambeau.training.metrics.rows import Array, LabelledRows, labelled_rows

State = dict[str, Array]


class Metric(ABC):
    """Number about predictions and labels, the same however rows are spread over workers.

    `loss_name` defines what the model's outputs mean; up to `exact_rows` rows (of all workers) are
    kept where a metric needs all of them.
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool]
    #: Whether labels for outputs of one value per row must be 0, 1 or between them.
    binary: ClassVar[bool] = False

    def __init__(self, *, loss_name: str | None = None, exact_rows: int = 5_000_000) -> None:
        self._loss_name = loss_name
        self._exact_rows = exact_rows

    def update(
        self,
        output: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        group: Tensor | Array | None = None,
    ) -> None:
        """Add a batch: the model's raw outputs, labels (NaN: left out), weights and groups."""
        # An empty batch does not show whether outputs are one value per row or several classes.
        if label.numel():
            rows = labelled_rows(output, label, weight, group, self._loss_name)
            if self.binary:
                rows.require_binary(self.name)
            self._add(rows)

    @abstractmethod
    def _add(self, rows: LabelledRows) -> None:
        """Add some rows."""

    @abstractmethod
    def state(self) -> State:
        """Return what this worker has accumulated, for `merge`."""

    @abstractmethod
    def clear(self) -> None:
        """Discard everything accumulated."""

    @abstractmethod
    def add(self, state: State) -> None:
        """Add what another process has accumulated."""

    def merge(self, states: Sequence[State]) -> None:
        """Replace the state by the sum of all workers' states, including this one's."""
        self.clear()
        for state in states:
            self.add(state)

    @abstractmethod
    def compute(self) -> float:
        """Return the value over everything accumulated; NaN where it is not defined."""


class SumMetric(Metric):
    """Metric that is a function of a few sums over rows."""

    def __init__(self, *, loss_name: str | None = None, exact_rows: int = 5_000_000) -> None:
        super().__init__(loss_name=loss_name, exact_rows=exact_rows)
        self._sums: Array = np.zeros(0)

    @abstractmethod
    def _terms(self, rows: LabelledRows) -> Sequence[Array]:
        """Return the weighted terms to sum over rows: each [rows] or [rows, columns]."""

    @abstractmethod
    def _value(self, sums: Array) -> float:
        """Return the metric from its sums; their first dimension is the term."""

    def _add(self, rows: LabelledRows) -> None:
        self._include(np.stack([term.sum(axis=0) for term in self._terms(rows)]))

    def _include(self, sums: Array) -> None:
        # A worker without rows has an empty state: the number of classes is unknown to it.
        if sums.size:
            self._sums = self._sums + sums if self._sums.size else sums

    def state(self) -> State:
        return {"sums": self._sums}

    def clear(self) -> None:
        self._sums = np.zeros(0)

    def add(self, state: State) -> None:
        self._include(state["sums"])

    def compute(self) -> float:
        return self._value(self._sums) if self._sums.size else float("nan")


def ratio(numerator: float, denominator: float) -> float:
    """Return the quotient, or NaN if the denominator is 0."""
    return float(numerator / denominator) if denominator else float("nan")
