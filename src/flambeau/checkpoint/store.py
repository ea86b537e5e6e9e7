"""Writing and reading of checkpoints."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flambeau.checkpoint.durable import sync_directory
from flambeau.checkpoint.manifest import FileEntry, Manifest, TableEntry
from flambeau.checkpoint.references import (
    checkpoint_path,
    checkpoints,
    mark_latest,
)
from flambeau.checkpoint.retention import remove_checkpoint
from flambeau.checkpoint.run_directory import RunDirectory
from flambeau.checkpoint.tensor_file import read_tensors, require_savable, write_tensors
from flambeau.checkpoint.tree import Json, flatten, unflatten
from flambeau.errors import CheckpointError

#: Function that waits for files that other processes write into a checkpoint's directory, and
#: returns these files and the tables.
Others = Callable[[], tuple[dict[str, FileEntry], dict[str, TableEntry]]]

DENSE = "dense.safetensors"
STATE = "state.safetensors"


@dataclass
class TrainingState:
    """State from which a training resumes: weights, and a tree of everything else.

    `extra` (optimizers, schedules, random generators, data position) consists of values that
    `tree.flatten` accepts.
    """

    step: int
    epoch: int
    workers: int
    model: dict[str, Tensor]
    extra: Any = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """A training state split into JSON and tensors, ready to be written."""

    step: int
    epoch: int
    workers: int
    metrics: dict[str, float]
    tree: Json
    tensors: dict[str, dict[str, Tensor]]
    #: Metric by which this is the best checkpoint of the run so far, or None.
    best: str | None = None

    def copied(self) -> "Snapshot":
        """Return a copy in its own CPU memory, which later training steps do not change."""
        return replace(
            self, tensors={file: _copied(tensors) for file, tensors in self.tensors.items()}
        )


def take_snapshot(state: TrainingState) -> Snapshot:
    """Return the state as it would be written; its tensors share memory with the model's."""
    tree, tensors = flatten(state.extra)
    require_savable(state.model)
    require_savable(tensors)
    return Snapshot(
        step=state.step,
        epoch=state.epoch,
        workers=state.workers,
        metrics=dict(state.metrics),
        tree=tree,
        tensors={DENSE: dict(state.model), STATE: tensors},
    )


def write_checkpoint(run: RunDirectory, state: TrainingState) -> Path:
    """Commit a checkpoint, replacing an earlier one of the same step; return its directory."""
    return write_snapshot(run, take_snapshot(state))


def make_room(run: RunDirectory, step: int) -> Path:
    """Create the directory of a new checkpoint, replacing an earlier one of the same step."""
    directory = checkpoint_path(run, step)
    with explained(run, step):
        remove_checkpoint(directory)
        directory.mkdir(parents=True)
    return directory


def write_snapshot(run: RunDirectory, snapshot: Snapshot, others: Others | None = None) -> Path:
    """Commit a snapshot as a checkpoint; if that fails, remove its files.

    `others` waits for files that other processes write into its directory (see `make_room`).
    """
    directory = checkpoint_path(run, snapshot.step)
    with explained(run, snapshot.step):
        try:
            if others is None:
                make_room(run, snapshot.step)
            _write(directory, snapshot, others)
            mark_latest(run, snapshot.step, snapshot.metrics)
        except BaseException:
            remove_checkpoint(directory)
            raise
    return directory


@contextmanager
def explained(run: RunDirectory, step: int) -> Iterator[None]:
    """Turn operating system errors into `CheckpointError`, which names the last good checkpoint."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(_not_written(run, step, error)) from error


def read_checkpoint(path: Path) -> TrainingState:
    """Return the state in a committed checkpoint, with every byte verified."""
    manifest = Manifest.read(path)
    missing = {DENSE, STATE} - manifest.files.keys()
    if missing:
        raise CheckpointError(f"{path} is incomplete: its manifest lacks {', '.join(missing)}")
    return TrainingState(
        step=manifest.step,
        epoch=manifest.epoch,
        workers=manifest.workers,
        model=read_tensors(path / DENSE, manifest.files[DENSE]),
        extra=unflatten(manifest.state, read_tensors(path / STATE, manifest.files[STATE])),
        metrics=manifest.metrics,
    )


def _write(directory: Path, snapshot: Snapshot, others: Others | None) -> None:
    files = {name: write_tensors(directory / name, t) for name, t in snapshot.tensors.items()}
    tables: dict[str, TableEntry] = {}
    if others is not None:
        more, tables = others()
        files |= more
    sync_directory(directory.parent)
    Manifest(
        step=snapshot.step,
        epoch=snapshot.epoch,
        workers=snapshot.workers,
        time=time.time(),
        metrics=snapshot.metrics,
        best=snapshot.best,
        state=snapshot.tree,
        files=files,
        tables=tables,
    ).write(directory)


def _not_written(run: RunDirectory, step: int, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = f"no space left in {run.path}" if full else f"cannot write in {run.path}: {error}"
    there = checkpoints(run)
    last = f"{there[-1].name} is the last" if there else "there is no earlier checkpoint"
    return f"{reason}; the checkpoint of step {step} was not written, {last}"


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
