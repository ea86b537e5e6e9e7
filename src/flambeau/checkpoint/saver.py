"""Saving of checkpoints in the background, while the training continues."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, final

from flambeau.checkpoint.references import mark_best
from flambeau.checkpoint.retention import hold, prune, remove_checkpoint
from flambeau.checkpoint.run_directory import RunDirectory
from flambeau.checkpoint.store import (
    Others,
    Snapshot,
    TrainingState,
    explained,
    make_room,
    take_snapshot,
    write_snapshot,
)
from flambeau.errors import SnapshotLostError


@final
class CheckpointSaver:
    """Writer of checkpoints in the background that keeps the last `keep`.

    With `for_evaluator`, each checkpoint is kept until the evaluator has released it. `on_saved` is
    called with the step of each complete checkpoint, and the metric and value if it is the best.

    A checkpoint that cannot be completed because a server was lost is abandoned: `on_lost` is
    called with its step and the reason. The next `save`, `wait` or `close` raises any other
    background error.
    """

    def __init__(
        self,
        run: RunDirectory,
        keep: int,
        *,
        for_evaluator: bool = False,
        on_saved: Callable[[int, tuple[str, float] | None], None] | None = None,
        on_lost: Callable[[int, str], None] | None = None,
    ) -> None:
        self._run = run
        self._on_saved, self._on_lost = on_saved, on_lost
        self._keep = keep
        self._for_evaluator = for_evaluator
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(
        self,
        state: TrainingState,
        best: tuple[str, float] | None = None,
        begin: Callable[[Path], Others] | None = None,
    ) -> None:
        """Copy the state to CPU memory now and write it later; the caller may change it afterwards.

        Wait for the previous checkpoint, so that only one copy exists at a time. `best` (a metric
        and its value) marks the checkpoint as the best of the run once it is committed. `begin`
        makes other processes write their files into the checkpoint's directory.
        """
        self.wait()
        snapshot = take_snapshot(state).copied()
        if best is not None:
            snapshot = replace(snapshot, best=best[0])
        with self._giving_up(state.step):
            others = None if begin is None else self._begin(state.step, begin)
            self._writing = self._thread.submit(self._write, snapshot, best, others)

    def wait(self) -> None:
        """Wait until everything saved so far is committed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _giving_up(self, step: int) -> Iterator[None]:
        try:
            yield
        except SnapshotLostError as error:
            if self._on_lost is None:
                raise
            self._on_lost(step, str(error))

    def _begin(self, step: int, begin: Callable[[Path], Others]) -> Others:
        directory = make_room(self._run, step)
        try:
            with explained(self._run, step):
                return begin(directory)
        except BaseException:
            remove_checkpoint(directory)
            raise

    def _write(
        self, snapshot: Snapshot, best: tuple[str, float] | None, others: Others | None
    ) -> None:
        with self._giving_up(snapshot.step):
            path = write_snapshot(self._run, snapshot, others)
            if self._for_evaluator:
                hold(path)
            if best is not None:
                mark_best(self._run, snapshot.step, *best)
            prune(self._run, self._keep)
            if self._on_saved is not None:
                self._on_saved(snapshot.step, best)
