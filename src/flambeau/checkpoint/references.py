"""Which checkpoints a run has, and what `best`, `latest` and `step-N` stand for."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flambeau.checkpoint.durable import write_atomically
from flambeau.checkpoint.manifest import Manifest, metrics_as_json
from flambeau.checkpoint.run_directory import RunDirectory
from flambeau.errors import CheckpointError, ConfigError

_STEP = re.compile(r"step-(\d+)")
_REFERENCE = re.compile(r"(?P<path>.+)@(?P<which>best|latest|step-\d+)")


def checkpoint_path(run: RunDirectory, step: int) -> Path:
    """Where the checkpoint of `step` is, or would be."""
    return run.checkpoints / f"step-{step:08d}"


def step_directories(run: RunDirectory) -> list[Path]:
    """All directories of checkpoints by step, committed or not."""
    if not run.checkpoints.is_dir():
        return []
    found = [path for path in run.checkpoints.iterdir() if _STEP.fullmatch(path.name)]
    return sorted(found, key=_step)


def checkpoints(run: RunDirectory) -> list[Path]:
    """The committed checkpoints by step, the newest last."""
    return [path for path in step_directories(run) if is_committed(path)]


def is_committed(path: Path) -> bool:
    """Whether the checkpoint has a sound manifest; its other files are not looked at."""
    try:
        Manifest.read(path)
    except CheckpointError:
        return False
    return True


def mark_best(run: RunDirectory, step: int, metric: str, value: float) -> None:
    """Make the checkpoint of `step` the best of the run, so that it is kept."""
    values = metrics_as_json({"value": value})
    _write_pointer(run.best, {"step": step, "metric": metric, **values})


def best(run: RunDirectory) -> dict[str, Any] | None:
    """The best checkpoint so far: its `step`, and the `value` of the `metric` that says so."""
    pointer = _read_pointer(run.best)
    return None if pointer is None else pointer | {"value": float(pointer["value"])}


def mark_latest(run: RunDirectory, step: int, metrics: Mapping[str, float]) -> None:
    """Make the checkpoint of `step` the latest of the run."""
    _write_pointer(run.latest, {"step": step, "metrics": metrics_as_json(metrics)})


def latest(run: RunDirectory) -> dict[str, Any] | None:
    """The checkpoint that was written last: its `step` and `metrics`."""
    pointer = _read_pointer(run.latest)
    if pointer is None:
        return None
    metrics = {name: float(value) for name, value in pointer["metrics"].items()}
    return pointer | {"metrics": metrics}


def resolve(run: RunDirectory, which: str) -> Path:
    """The committed checkpoint that is `"best"`, `"latest"` or `"step-N"`."""
    step = _wanted_step(run, which)
    path = checkpoint_path(run, step)
    if is_committed(path):
        return path
    there = ", ".join(path.name for path in checkpoints(run)) or "none"
    raise CheckpointError(f"{run.path} has no checkpoint of step {step} ({which}); it has: {there}")


def parse_reference(reference: str) -> tuple[Path, str]:
    """The run and which of its checkpoints: `"runs/a@step-100"` is `(Path("runs/a"), "step-100")`.

    Without `@`, it is the best checkpoint if the run has one, else the latest.
    """
    match = _REFERENCE.fullmatch(reference)
    if match:
        return Path(match["path"]), match["which"]
    path = Path(reference)
    if "@" in path.name and not path.exists():
        raise ConfigError(f"{reference!r}: after '@' write best, latest or step-N")
    return path, "best" if RunDirectory(path).best.exists() else "latest"


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _wanted_step(run: RunDirectory, which: str) -> int:
    if match := _STEP.fullmatch(which):
        return int(match[1])
    if which not in ("best", "latest"):
        raise ConfigError(f"{which!r} is no checkpoint; use 'best', 'latest' or 'step-N'")
    pointer = best(run) if which == "best" else _newest(run)
    if pointer is None:
        raise CheckpointError(f"{run.path} has no {which} checkpoint yet; train it first")
    if not pointer["step"] and not any(_step(path) for path in checkpoints(run)):
        raise CheckpointError(
            f"{run.path} has trained nothing: its only checkpoint is that of its beginning; train "
            "first (step-0 if untrained weights are wanted)"
        )
    return int(pointer["step"])


def _newest(run: RunDirectory) -> dict[str, Any] | None:
    """What was written last, also if a crash came between its commit and `latest.json`."""
    pointer, committed = latest(run), checkpoints(run)
    if committed and (pointer is None or checkpoint_path(run, pointer["step"]) not in committed):
        return {"step": _step(committed[-1])}
    return pointer


def _write_pointer(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(values, allow_nan=False).encode())


def _read_pointer(path: Path) -> dict[str, Any] | None:
    try:
        pointer: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(f"{path} is corrupt: {error}; remove it") from error
    return pointer
