"""Labels of drawn rows, and their true probabilities."""

from dataclasses import dataclass

import numpy as np

from flambeau.data.generated.drawing import DrawnRows
from flambeau.data.generated.effects import Array
from flambeau.data.generated.probabilities import Probabilities
from flambeau.data.generated.settings import ClickLog


@dataclass(frozen=True)
class Outcomes:
    """Labels [rows, tasks] as they are written; probabilities and labels by scored task."""

    labels: Array
    scored: dict[str, tuple[Array, Array]]


def scored_tasks(log: ClickLog) -> tuple[str, ...]:
    """Return the tasks that have scores."""
    return ("click",) if len(log.labels) == 1 else (*log.labels, "conversion_after_click")


def outcomes(log: ClickLog, probabilities: Probabilities, rows: DrawnRows) -> Outcomes:
    """Draw labels: a label is 1 if the row's chance is below its true probability."""
    click = probabilities.click(rows.parts)
    clicked = rows.chances[:, 0] < click
    scored = {"click": (click, clicked)}
    if "conversion" in log.labels:
        after = probabilities.conversion(rows.parts)
        converted = clicked & (rows.chances[:, 1] < after)
        scored["conversion"] = (click * after, converted)
        scored["conversion_after_click"] = (after[clicked], converted[clicked])
    labels = np.stack([scored[task][1] for task in log.labels], axis=1).astype(np.uint8)
    return Outcomes(labels, scored)
