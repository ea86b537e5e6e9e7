"""Evaluation of the checkpoints of a run, one by one, as they are written."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

from flambeau.checkpoint import RunDirectory, best, checkpoints, lease, mark_best
from flambeau.checkpoint.manifest import damage
from flambeau.checkpoint.retention import release, remove_surplus
from flambeau.checkpoint.store import TrainingState, read_checkpoint
from flambeau.checkpoint.weights import load_all_weights
from flambeau.config import JobSettings
from flambeau.data.sources.shared_files import located
from flambeau.errors import CheckpointError
from flambeau.observe import read_events
from flambeau.runs import open_data, open_model
from flambeau.runs.evaluation import Evaluation
from flambeau.runs.trained_run import attach_tables
from flambeau.training.best import Best

POLL_SECONDS = 0.5


Report = Callable[..., None]


@final
class Follower:
    """Evaluator of every checkpoint, once and in order, that marks the best one.

    Damaged checkpoints are skipped. With `own=False`, the data is not the job's: it also evaluates
    checkpoints that the job has evaluated itself, and marks none.
    """

    def __init__(
        self, run: RunDirectory, settings: JobSettings, report: Report, *, own: bool = True
    ) -> None:
        self._run, self._settings, self._report, self._own = run, settings, report, own
        load_code = open_model.code_loader(run)
        self._model = open_model.build_job_model(settings, load_code)
        valid = located(open_data.validation_data(settings), run.path)
        source = open_data.open_data(valid, load_code, settings.binding)
        self._source = open_data.attach_features(source, run, settings, valid)
        self._best = Best(settings.checkpoints.best, settings.checkpoints.mode)
        self._done = self._evaluated_before() if own else set()
        self._damaged: set[str] = set()
        self._held: dict[Path, contextlib.ExitStack] = {}
        self._holding = threading.Lock()
        self.metrics: dict[str, float] = {}

    def follow(self, ended: Callable[[float], bool]) -> None:
        """Evaluate existing and new checkpoints; `ended(seconds)` waits for the end of the run."""
        over = False
        with self._leasing():
            while True:
                pending = self._pending()
                if pending:
                    self._evaluate(pending[0])
                elif over:
                    break
                else:
                    # Check again for a checkpoint that was written just before the end.
                    over = ended(POLL_SECONDS)
        self._report_missed()

    def _remove_surplus(self) -> None:
        """Remove checkpoints that the job kept only because of a lease, if the job has ended."""
        if not self._run.in_use:
            remove_surplus(self._run, self._settings.checkpoints.keep)

    @contextlib.contextmanager
    def _leasing(self) -> Iterator[None]:
        """Lease new checkpoints during an evaluation, too: they might be pruned before its end."""
        done = threading.Event()

        def lease_new() -> None:
            while not done.wait(POLL_SECONDS):
                self._pending()

        thread = threading.Thread(target=lease_new, name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            for held in self._held.values():
                held.close()
            self._remove_surplus()

    def _report_missed(self) -> None:
        """Report checkpoints that are damaged, or were removed before they could be leased."""
        steps = self._steps("checkpoint", "evaluation")
        by_job = {name for name, _ in steps["evaluation"]} if self._own else set()
        missed = {name for name, _ in steps["checkpoint"]} - self._done - by_job
        without_manifest = {name for name in missed if damage(self._run.checkpoints / name)}
        if damaged := self._damaged | without_manifest:
            text = f"not evaluated, because they are damaged: {', '.join(sorted(damaged))}"
            self._report("warning", text=text)
        if removed := missed - without_manifest:
            names = ", ".join(sorted(removed))
            text = f"not evaluated, because they were removed too early: {names}; raise "
            self._report("warning", text=f"{text}checkpoints.keep, or save less often")

    def _pending(self) -> list[Path]:
        """Lease committed checkpoints that are not evaluated yet, and return them."""
        with self._holding:
            self._hold_new()
            return sorted(self._held)

    def _hold_new(self) -> None:
        for path in checkpoints(self._run):
            if path.name not in self._done and path not in self._held:
                held = contextlib.ExitStack()
                try:
                    held.enter_context(lease(path, seconds=3600))
                except CheckpointError:
                    continue  # removed between listing and leasing: newer ones exist
                self._held[path] = held

    def _evaluate(self, path: Path) -> None:
        started = time.perf_counter()
        names = self._settings.metrics
        try:
            state = self._load(path)
            evaluation = Evaluation(self._run, self._settings, self._model, self._source, names)
            scores = evaluation.scores()
        except CheckpointError as error:  # rows of tables are verified when they are used
            self._damaged.add(path.name)
            self._report("warning", text=f"skipped the checkpoint {path.name}: {error}")
            return
        self.metrics = scores.metrics
        self._report(
            "evaluation",
            step=state.step,
            epoch=state.epoch,
            metrics=scores.metrics,
            rows=scores.rows,
            seconds=time.perf_counter() - started,
        )
        if self._own:
            self._mark(state)

    def _load(self, path: Path) -> TrainingState:
        """Load the weights and tables of a checkpoint into the model; release the checkpoint."""
        try:
            with self._held[path]:
                state = read_checkpoint(path)
                load_all_weights(self._model, state.model)
                attach_tables(self._model, path)
        except CheckpointError:
            self._let_go(path)
            raise
        self._let_go(path)
        return state

    def _let_go(self, path: Path) -> None:
        """End all leases, including the one that the job's workers hold for the evaluator."""
        release(path)
        with self._holding:
            self._done.add(path.name)
            del self._held[path]

    def _mark(self, state: TrainingState) -> None:
        if self._best.improves(self.metrics) and self._best.value is not None:
            mark_best(self._run, state.step, self._best.metric, self._best.value)
            self._report("best", step=state.step, metric=self._best.metric, value=self._best.value)

    def _evaluated_before(self) -> set[str]:
        """Return the names of checkpoints whose evaluation is in the events of the run."""
        evaluated = self._steps("evaluation")["evaluation"]
        leader = None
        for _, fields in evaluated:
            # The log has null for values that are not finite.
            metrics = fields["metrics"].items()
            if self._best.improves({name: math.nan if v is None else v for name, v in metrics}):
                leader = fields["step"]
        value = self._best.value
        if leader is not None and value is not None and best(self._run) is None:
            mark_best(self._run, leader, self._best.metric, value)  # best.json was lost
        return {name for name, _ in evaluated}

    def _steps(self, *kinds: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Read the log once; return checkpoint names and fields of events, by kind."""
        steps: dict[str, list[tuple[str, dict[str, Any]]]] = {kind: [] for kind in kinds}
        for event in read_events(self._run.events) if self._run.events.exists() else ():
            if event.kind in steps:
                steps[event.kind].append((f"step-{event.fields['step']:08d}", event.fields))
        return steps
