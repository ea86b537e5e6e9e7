"""Scores of the true probabilities on the drawn labels, which models exceed only by chance."""

import json
from pathlib import Path

import numpy as np

from flambeau.config import Settings
from flambeau.data.generated.effects import Array
from flambeau.data.generated.settings import ClickLog

#: At most this many rows are sorted exactly; of more, probabilities are counted in fine bins.
MOST_EXACT = 2_000_000
_BINS = 1 << 18


class Score(Settings):
    """Scores of the true probabilities of a task on some rows.

    `auc` is None if all labels are equal.
    """

    rows: int
    positives: int
    auc: float | None
    logloss: float


class Truth(Settings):
    """Settings of a generated log, and the best scores that a model can reach on it.

    Scores are given by task, for all days together and for each day. `conversion` is over all rows,
    and `conversion_after_click` over those with a click.
    """

    settings: ClickLog
    overall: dict[str, Score]
    by_day: tuple[dict[str, Score], ...]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """Read what `write` wrote."""
        return cls.parse(json.loads(path.read_text(encoding="utf-8")), str(path))


class TruthScores:
    """Scores of rows that are added in pieces. Its memory does not grow with the number of rows."""

    def __init__(self, most_exact: int = MOST_EXACT) -> None:
        self._most_exact = most_exact
        self._pieces: list[tuple[Array, Array]] = []
        self._bins: Array | None = None
        self._rows = self._positives = self._unbinned = 0
        self._loss = 0.0

    def add(self, probabilities: Array, labels: Array) -> None:
        """Add rows with their true probabilities and their labels (of type bool)."""
        self._rows += len(labels)
        self._positives += int(labels.sum())
        chosen = np.where(labels, probabilities, 1.0 - probabilities)
        self._loss -= float(np.log(np.maximum(chosen, 1e-300)).sum())
        self._pieces.append((probabilities, labels))
        self._unbinned += len(labels)
        if self._unbinned > self._most_exact:
            self._fill_bins()

    def _fill_bins(self) -> None:
        if self._bins is None:
            self._bins = np.zeros((2, _BINS), np.int64)
        for probabilities, labels in self._pieces:
            places = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
            for label in (0, 1):
                self._bins[label] += np.bincount(places[labels == label], minlength=_BINS)
        self._pieces.clear()
        self._unbinned = 0

    def score(self) -> Score:
        """Return the score of all rows so far."""
        if self._bins is not None:
            self._fill_bins()
        negatives, positives = self._bins if self._bins is not None else self._exact()
        return Score(
            rows=self._rows,
            positives=self._positives,
            auc=_auc(negatives, positives),
            logloss=round(self._loss / max(1, self._rows), 6),
        )

    def _exact(self) -> Array:
        """Return counts of negatives and positives of each probability, in increasing order."""
        if not self._pieces:
            return np.zeros((2, 1), np.int64)
        probabilities, labels = map(np.concatenate, zip(*self._pieces, strict=True))
        values, places = np.unique(probabilities, return_inverse=True)
        counts = [np.bincount(places[labels == label], minlength=len(values)) for label in (0, 1)]
        return np.stack(counts)


def _auc(negatives: Array, positives: Array) -> float | None:
    """Return the share of correctly ordered pairs, from counts by increasing probability."""
    pairs = float(negatives.sum()) * float(positives.sum())
    if pairs == 0:
        return None
    below = np.cumsum(negatives) - negatives / 2
    return round(float(positives @ below) / pairs, 6)


class TaskScoring:
    """Scores of all tasks."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self._tasks = {task: TruthScores() for task in tasks}

    def add(self, outcomes: dict[str, tuple[Array, Array]]) -> None:
        """Add probabilities and labels by task."""
        for task, (probabilities, labels) in outcomes.items():
            self._tasks[task].add(probabilities, labels)

    def scores(self) -> dict[str, Score]:
        """Return the scores by task."""
        return {task: scoring.score() for task, scoring in self._tasks.items()}
