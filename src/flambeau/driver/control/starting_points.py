"""The checkpoint from which a generation, or the replacement of a lost process, starts."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import final

from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.manifest import MANIFEST
from flambeau.checkpoint.references import checkpoints, step_directories
from flambeau.checkpoint.retention import START, hold, release
from flambeau.checkpoint.soundness import verify_checkpoint
from flambeau.errors import CheckpointError

#: The longest time that starting may take; if the driver is killed, the lease expires after it.
LEASE_SECONDS = 86_400.0


@dataclass(frozen=True)
class StartingPoint:
    """The name of a checkpoint (None: from the beginning), and why newer ones were skipped."""

    checkpoint: str | None = None
    skipped: tuple[str, ...] = ()


@final
class StartingPoints:
    """The choice of the newest checkpoint whose files are all intact, and its lease.

    Without a run there is none; `always` is the checkpoint of a job that saves none itself. All
    roles receive its name, so that all start from the same one. A separate thread reads the files:
    they may be large, and the coordinator must not block meanwhile.
    """

    def __init__(
        self,
        run: RunDirectory | None = None,
        *,
        resumes: bool = False,
        always: str | None = None,
    ) -> None:
        self._run, self._resumes, self._always = run, resumes, always
        self._closed = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flambeau-start")
        self.release()  # leases of a killed driver

    @property
    def exist(self) -> bool:
        """Return whether there is any checkpoint, intact or not."""
        return self._run is not None and bool(checkpoints(self._run))

    def choose(self, *, again: bool) -> Future[StartingPoint]:
        """Find the starting point in the background; `again`: roles of this job ran before."""
        if self._run is not None and (again or self._resumes):
            return self._thread.submit(self._choose, self._run, again)
        beginning: Future[StartingPoint] = Future()
        beginning.set_result(StartingPoint(self._always))
        return beginning

    def release(self) -> None:
        """Release all leases: no role will start from these checkpoints any more."""
        for path in step_directories(self._run) if self._run is not None else ():
            release(path, START)

    def close(self) -> None:
        """Release the leases and stop the thread."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)
        self.release()

    def _choose(self, run: RunDirectory, again: bool) -> StartingPoint:
        skipped: list[str] = []
        for path in reversed(step_directories(run)):
            try:
                self._lease_if_sound(path)
                return StartingPoint(path.name, tuple(skipped))
            except CheckpointError as error:
                # While others train, a checkpoint may be half written or removed: not damage.
                if not again or (path / MANIFEST).exists():
                    skipped.append(f"skipped the checkpoint {path.name}: {error}")
        return StartingPoint(None, tuple(skipped))

    def _lease_if_sound(self, path: Path) -> None:
        hold(path, START, LEASE_SECONDS)
        try:
            verify_checkpoint(path, self._require_open)
        except BaseException:
            release(path, START)
            raise

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise CheckpointError("the job ended before a checkpoint was chosen")
