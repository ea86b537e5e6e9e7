"""The checkpoints of a run, and the meaning of `best`, `latest` and `step-N`."""

import contextlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flambeau.checkpoint.durable import write_atomically
from flambeau.checkpoint.manifest import Manifest, damage, metrics_as_json
from flambeau.checkpoint.run_directory import RunDirectory
from flambeau.errors import CheckpointError, ConfigError

_STEP = re.compile(r"step-(\d+)")
_REFERENCE = re.compile(r"(?P<path>.+)@(?P<which>best|latest|step-\d+)")


def checkpoint_path(run: RunDirectory, step: int) -> Path:
    """Return the path of the checkpoint of `step`, which need not exist."""
    return run.checkpoints / f"step-{step:08d}"


def step_directories(run: RunDirectory) -> list[Path]:
    """Return all checkpoint directories by step, committed or not."""
    if not run.checkpoints.is_dir():
        return []
    found = [path for path in run.checkpoints.iterdir() if _STEP.fullmatch(path.name)]
    return sorted(found, key=step_of)


def checkpoints(run: RunDirectory) -> list[Path]:
    """Return the committed checkpoints by step, the newest last."""
    return [path for path in step_directories(run) if is_committed(path)]


def is_committed(path: Path) -> bool:
    """Return whether the checkpoint has a sound manifest; its other files are not checked."""
    try:
        Manifest.read(path)
    except CheckpointError:
        return False
    return True


def mark_best(run: RunDirectory, step: int, metric: str, value: float) -> None:
    """Mark the checkpoint of `step` as the best of the run, so that it is kept."""
    values = metrics_as_json({"value": value})
    _write_pointer(run.best, {"step": step, "metric": metric, **values})


def best(run: RunDirectory) -> dict[str, Any] | None:
    """Return the best checkpoint so far: its `step`, and the `metric` and `value` that decided.

    If `best.json` is missing or damaged, it is the last one that was the best when it was written.
    """
    return _read_pointer(run.best, _as_best) or _best_in_manifests(run)


def mark_latest(run: RunDirectory, step: int, metrics: Mapping[str, float]) -> None:
    """Mark the checkpoint of `step` as the latest of the run."""
    _write_pointer(run.latest, {"step": step, "metrics": metrics_as_json(metrics)})


def latest(run: RunDirectory) -> dict[str, Any] | None:
    """Return the `step` and `metrics` of the checkpoint that was written last.

    If `latest.json` is missing or damaged, or names a removed checkpoint, it is the newest one.
    """
    pointer = _read_pointer(run.latest, _as_latest)
    if pointer is not None and is_committed(checkpoint_path(run, pointer["step"])):
        return pointer
    newest = next(_manifests(run), None)
    return newest and {"step": newest.step, "metrics": newest.metrics}


def repair_pointers(run: RunDirectory) -> None:
    """Update `best.json` and `latest.json` from the manifests, after a crash or damage.

    Call it only while no process of the run is active.
    """
    newest, known = latest(run), _read_pointer(run.latest, _as_latest)
    if newest is not None and newest != known:
        mark_latest(run, newest["step"], newest["metrics"])
    marked, noted = _read_pointer(run.best, _as_best), _best_in_manifests(run)
    # A crash may have happened between a commit and its mark.
    if noted is not None and (marked is None or marked["step"] < noted["step"]):
        mark_best(run, noted["step"], noted["metric"], noted["value"])
    elif marked is None:
        run.best.unlink(missing_ok=True)


def resolve(run: RunDirectory, which: str) -> Path:
    """Return the committed checkpoint for `"best"`, `"latest"` or `"step-N"`.

    If one with a damaged manifest may have been meant by the first two, a warning names it.
    """
    step = _wanted_step(run, which)
    path = checkpoint_path(run, step)
    if is_committed(path):
        _warn_of_skipped(run, which, path)
        return path
    there = ", ".join(path.name for path in checkpoints(run)) or "none"
    wrong = damage(path)
    problem = f"{run.path} has no checkpoint of step {step} ({which})" if wrong is None else wrong
    raise CheckpointError(f"{problem}; the run has these sound checkpoints: {there}")


def parse_reference(reference: str) -> tuple[Path, str]:
    """Parse a reference to a run and one of its checkpoints.

    `"runs/a@step-100"` gives `(Path("runs/a"), "step-100")`. Without `@`, it is the best checkpoint
    if the run has one, else the latest.
    """
    match = _REFERENCE.fullmatch(reference)
    if match:
        return Path(match["path"]), match["which"]
    path = Path(reference)
    if "@" in path.name and not path.exists():
        raise ConfigError(f"{reference!r}: after '@' write best, latest or step-N")
    return path, "latest" if best(RunDirectory(path)) is None else "best"


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint's directory."""
    return int(path.name.removeprefix("step-"))


def _wanted_step(run: RunDirectory, which: str) -> int:
    if match := _STEP.fullmatch(which):
        return int(match[1])
    if which not in ("best", "latest"):
        raise ConfigError(f"{which!r} is not a checkpoint; use 'best', 'latest' or 'step-N'")
    pointer = best(run) if which == "best" else latest(run)
    if pointer is None:
        damaged = list(filter(None, map(damage, step_directories(run))))
        if damaged:
            raise CheckpointError(f"{run.path} has no sound checkpoint: {'; '.join(damaged)}")
        raise CheckpointError(f"{run.path} has no {which} checkpoint yet; train it first")
    if not pointer["step"] and not any(step_of(path) for path in checkpoints(run)):
        raise CheckpointError(
            f"{run.path} has not trained yet: its only checkpoint is the initial one; train "
            "first (step-0 if untrained weights are wanted)"
        )
    return int(pointer["step"])


def _warn_of_skipped(run: RunDirectory, which: str, used: Path) -> None:
    if which == "latest" or (which == "best" and _read_pointer(run.best, _as_best) is None):
        newer = [path for path in step_directories(run) if step_of(path) > step_of(used)]
        for skipped in filter(None, map(damage, newer)):
            text = f"{skipped}. It is skipped; {used.name} is used as the {which} checkpoint"
            warnings.warn(text, stacklevel=3)


def _best_in_manifests(run: RunDirectory) -> dict[str, Any] | None:
    """Return the last checkpoint that was the best when it was written."""
    manifest = next((manifest for manifest in _manifests(run) if manifest.best is not None), None)
    if manifest is None or manifest.best is None:
        return None
    value = manifest.metrics[manifest.best]
    return {"step": manifest.step, "metric": manifest.best, "value": value}


def _manifests(run: RunDirectory) -> Iterator[Manifest]:
    """Yield the sound manifests, newest first; a running job may remove some meanwhile."""
    for path in reversed(step_directories(run)):
        with contextlib.suppress(CheckpointError):
            yield Manifest.read(path)


def _write_pointer(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(values, allow_nan=False).encode())


def _read_pointer(path: Path, parse: Callable[[Any], dict[str, Any]]) -> dict[str, Any] | None:
    """Read a pointer; None if it is missing or damaged: the manifests have the same information."""
    try:
        return parse(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _as_best(values: Any) -> dict[str, Any]:
    metric, value = str(values["metric"]), float(values["value"])
    return {"step": int(values["step"]), "metric": metric, "value": value}


def _as_latest(values: Any) -> dict[str, Any]:
    metrics = {name: float(value) for name, value in values["metrics"].items()}
    return {"step": int(values["step"]), "metrics": metrics}
