"""Time of a step by part and by worker."""

from collections.abc import Mapping

from flambeau.reports.run_view import RunView

#: Parts of a step in display order, and their meanings.
PARTS = {
    "data": "waiting for rows",
    "dense": "forward, backward, all-reduce and optimizer",
    "compute": "all but waiting",
    "sparse": "look-ups and gradients of tables",
    "wait": "waiting for servers",
    "communication": "waiting for other processes",
}


def step_seconds(run: RunView) -> dict[str, Mapping[str, float]]:
    """Return the mean seconds per step of each part, by worker and for all; empty if unknown.

    While a job runs, these are the latest reports of the workers.
    """
    report = run.report or {}
    by_worker = report.get("by_worker") or dict(sorted(run.history.workers.items()))
    each = {f"worker {rank}": own["seconds_per_step"] for rank, own in by_worker.items()}
    if "seconds_per_step" in report:
        return {**each, "all workers": report["seconds_per_step"]}
    if each:
        steps = {f"worker {rank}": own["steps"] for rank, own in by_worker.items()}
        return {**each, "all workers": _mean(each, steps)}
    progress = run.history.progress
    if progress is None:
        return {}
    found = {
        "data": progress.data_seconds,
        "compute": progress.compute_seconds,
        "communication": progress.communication_seconds,
    }
    return {"all workers, lately": {name: value or 0.0 for name, value in found.items()}}


def _mean(each: dict[str, Mapping[str, float]], steps: dict[str, int]) -> dict[str, float]:
    """Return the mean of each part over the steps of all workers."""
    total = sum(steps.values()) or 1
    parts = next(iter(each.values()))
    return {part: sum(each[name][part] * steps[name] for name in each) / total for part in parts}


def share_of(run: RunView, part: str) -> float:
    """Return a part's share of the time of a step; 0 if it is unknown."""
    known = step_seconds(run)
    if not known:
        return 0.0
    parts = known[next(reversed(known))]
    return parts.get(part, 0.0) / (sum(parts.values()) or 1.0)
