"""Fitting in a folder: the resumable steps of a preparation that gather statistics."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flambeau.checkpoint.durable import write_atomically
from flambeau.coordination.plans import whole_shards
from flambeau.data.source import StreamedSource
from flambeau.errors import DataError
from flambeau.features.fitting import QUIET_SECONDS
from flambeau.features.fused_reading import fuse
from flambeau.features.operation import Operation, State
from flambeau.features.preparing.preparation import Preparation
from flambeau.features.preparing.prepared import IDENTITY, PART_ROWS, identity_of
from flambeau.features.preparing.stage_runner import Runner, run_steps
from flambeau.observe import Observer


def fit_in_folder(
    source: StreamedSource,
    operations: Sequence[Operation],
    folder: Path,
    memory: int,
    run: Runner,
    observer: Observer,
) -> tuple[State, ...]:
    """Return the statistics of operations, kept in files of the folder; `run` does the work.

    The work of an earlier call there is reused if it was for the same operations and data.
    """
    begin(folder, identity_of(source, operations, None))
    reading, done = fuse(source, operations)
    rows = [shard.rows for shard in source.shards()]
    if not sum(rows):
        raise DataError("there are no training rows to fit the pipeline on")
    parts, rest = tuple(whole_shards(rows, PART_ROWS)), tuple(operations[done:])
    job = Preparation(reading, parts, rest, None, folder, folder, memory)
    run_steps(job, job.steps()[:-1], run, observer, quiet_seconds=QUIET_SECONDS)
    return ({},) * done + job.states()


def begin(folder: Path, identity: dict[str, Any]) -> None:
    """Set up the folder: keep files of this fit, and remove all others."""
    asked = folder / IDENTITY
    text = json.dumps(identity).encode()
    if not asked.exists() or asked.read_bytes() != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_atomically(asked, text)
