"""A summary of a run in two sentences, advice, and next commands."""

import shlex
from collections.abc import Iterator

from flambeau.config.plural import number_of
from flambeau.reports.comparison import duration
from flambeau.reports.drawing import number, percent
from flambeau.reports.run_view import RunView
from flambeau.reports.step_seconds import share_of

#: Shares of a step's time above which advice is given.
_MUCH_DATA, _MUCH_WAIT = 0.3, 0.4
_MOST_METRICS = 4


def sentences(run: RunView) -> str:
    """Return sentences about what the run trains, and how far it is or how it ended."""
    return f"{_what(run)} {_how(run)}"


def _what(run: RunView) -> str:
    batch = run.settings.get("batch_size")
    who = number_of(run.workers, "worker") if run.workers else "workers"
    if run.servers:
        who += f" and {number_of(run.servers, 'server')}"
    where = {"local": "this machine", "attached": "the processes of a launcher"}
    place = where.get(run.cluster, run.cluster.capitalize())
    rows = f", {number_of(int(batch), 'row')} a batch of each worker" if batch else ""
    return f"{run.model or 'A model'} trained by {run.strategy}: {who} on {place}{rows}."


def _how(run: RunView) -> str:
    history = run.history
    at = f"step {run.step:,}"
    after = f"{at} after {duration(history.elapsed)}"
    match run.status:
        case "not started":
            return "It has not started."
        case "starting":
            return f"It is starting, for {duration(history.elapsed)} by now."
        case "running":
            return f"It is running{_progress(run)}."
        case "finished":
            return f"It finished at {after}{_outcome(run)}."
        case "stopped_early":
            return f"It ended early, by a callback or early stopping, at {after}{_outcome(run)}."
        case "stopped":
            return f"It was stopped by a signal at {after}; the same command resumes it."
        case "interrupted":
            return (
                f"It ended at {after} without a report: its driver was killed, or its machine was "
                "lost. The same command resumes it."
            )
    error = (run.report or {}).get("error") or (history.end or {}).get("error") or "unknown"
    return f"It failed at {after}: {str(error).splitlines()[0]}"


def _progress(run: RunView) -> str:
    progress = run.history.progress
    if progress is None:
        return ", and has made no step yet"
    total, at = progress.steps_total, progress.step
    if not total:
        return f": step {at:,}, epoch {progress.epoch + 1}"
    words = f": step {at:,} of {total:,} ({percent(at / total)}), epoch {progress.epoch + 1}"
    speed = _steps_per_second(run)
    left = f"; about {duration((total - at) / speed)} left" if speed and at < total else ""
    return words + left


def _steps_per_second(run: RunView) -> float | None:
    """Return the recent speed: over the last tenth of the known points."""
    found = run.history.numbers.thinned("loss")
    if len(found) < 2:
        return None
    back = max(2, len(found) // 10)
    steps = found.steps[-1] - found.steps[-back]
    seconds = found.elapsed[-1] - found.elapsed[-back]
    return float(steps / seconds) if steps > 0 and seconds > 0 else None


def _outcome(run: RunView) -> str:
    metrics = list(run.metrics.items())[:_MOST_METRICS]
    named = ", ".join(f"{name} {number(value)}" for name, value in metrics)
    return f"; the last evaluation: {named}" if named else ""


def advice(run: RunView) -> Iterator[str]:
    """Yield the problems that stand out, each with a remedy."""
    history = run.history
    if history.loss_lost is not None:
        yield (
            f"The loss was not finite at step {history.loss_lost:,}: lower the learning rate, or "
            "limit gradients with compute.clip_norm."
        )
    data, wait = share_of(run, "data"), share_of(run, "wait")
    if data > _MUCH_DATA:
        yield (
            f"Workers wait for rows {percent(data)} of the time: prepared files (flambeau "
            "prepare), Parquet instead of text, or more loading.workers are faster."
        )
    if wait > _MUCH_WAIT:
        yield (
            f"Workers wait for servers {percent(wait)} of the time: more servers, larger batches, "
            "or another consistency may be faster."
        )
    dropped = (run.report or {}).get("rows", {}).get("dropped", 0)
    if dropped:
        yield (
            f"{number_of(dropped, 'row')} changed nothing: their gradients came too late for their "
            "round, or were not finite."
        )


def next_commands(run: RunView) -> list[tuple[str, str]]:
    """Return useful next commands, each with its purpose."""
    place = shlex.quote(str(run.directory.path))
    which = "best" if run.best is not None else "latest"
    if run.status in ("running", "starting"):
        return [
            (f"flambeau watch {place}", "this page, live"),
            (f"tensorboard --logdir {place}/tensorboard", "curves in TensorBoard"),
        ]
    if run.status in ("failed", "stopped", "interrupted"):
        again = [("flambeau train JOB.yaml", "the same command again resumes the run")]
        return [*again, (f"flambeau report {place} -o run.html", "this page again, later")]
    if run.status == "not started":
        return []
    return [
        (f"flambeau evaluate {place}@{which} DATA", "metrics on other data"),
        (f"flambeau predict {place}@{which} DATA --out scores", "predictions"),
        (f"flambeau export {place}@{which} --out export", "the model, to serve it"),
    ]
