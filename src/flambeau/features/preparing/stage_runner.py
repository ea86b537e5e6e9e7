"""The steps of a preparation, one after the other, with their progress and cost."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import final

from flambeau.features.preparing.preparation import Preparation, Step
from flambeau.features.preparing.stage_records import StageRecords
from flambeau.observe import Observer
from flambeau.observe.stages import Stage, StageRecord, Stages


@final
@dataclass(frozen=True)
class Todo:
    """The pieces of a step that are not done yet; `number` counts the steps from 1."""

    number: int
    step: Step
    pieces: tuple[int, ...]
    title: str
    rows: int


@final
class Progress:
    """A reporter of steps, one after the other, which records the cost of each."""

    def __init__(self, stages: Stages, records: StageRecords) -> None:
        self._stages, self._records = stages, records
        self._open = ExitStack()

    def begin(self, todo: Todo) -> Stage:
        """Report that a step begins, and that the previous one has ended."""
        self.end()
        stage = self._open.enter_context(
            self._stages.stage(todo.title, todo.rows, len(todo.pieces), number=todo.number)
        )
        self._open.callback(lambda: self._records.add(stage.record))
        return stage

    def end(self) -> None:
        """Report that the step has ended."""
        self._open.close()


#: A function that does all pieces of steps, those of one step in any order, with progress.
Runner = Callable[[Preparation, Sequence[Todo], Progress], None]

_TITLES = {
    "gather": "gather statistics",
    "finish": "finish statistics",
    "transform": "write features",
}
RECORDS = "stages.json"


def run_steps(
    job: Preparation,
    steps: Sequence[Step],
    run: Runner,
    observer: Observer,
    *,
    quiet_seconds: float = 0.0,
) -> tuple[StageRecord, ...]:
    """Do the missing pieces of steps; return the cost of each, over all calls."""
    records = StageRecords(job.work / RECORDS)
    todo = [_missing(job, steps, number) for number in range(len(steps))]
    todo = [each for each in todo if each.pieces]
    if todo:
        stages = Stages(observer, len(steps), quiet_seconds=quiet_seconds)
        progress = Progress(stages, records)
        try:
            run(job, todo, progress)
        finally:
            progress.end()
    return records.all()


def _missing(job: Preparation, steps: Sequence[Step], number: int) -> Todo:
    step = steps[number]
    pieces = tuple(piece for piece in range(step.pieces) if not job.is_done(step, piece))
    rows = sum(job.rows_of(step, each) for each in pieces)
    return Todo(number + 1, step, pieces, title_of(step, steps), rows)


def title_of(step: Step, steps: Sequence[Step]) -> str:
    """Return the title of a step; passes over the rows are numbered if there are several.

    For example: `gather statistics 2`
    """
    title = _TITLES.get(step.kind, step.kind)
    several = sum(other.kind == step.kind for other in steps) > 1
    return f"{title} {step.stage + 1}" if several else title
