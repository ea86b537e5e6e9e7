"""Trainings in the midst of which something happens to their processes."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_toys import Net, Slow, rows

import flambeau as fb
from flambeau.config import RemoteCluster

ROWS, EPOCHS = 400, 4
QUIET = {"progress": "none"}


def fit(
    folder: Path,
    cluster: RemoteCluster,
    act: Callable[[], None],
    *,
    until: str | None = None,
    **more: Any,
) -> fb.Result:
    """Train; `act` when workers are in the midst of it.

    The file `acted` in `folder` says that it has happened; workers wait for a file named `until`.
    """
    over = threading.Event()

    def watch() -> None:
        while not (folder / "begun").exists() and not over.is_set():
            time.sleep(0.02)
        try:
            if not over.is_set():
                act()
        finally:
            (folder / "acted").touch()

    thread = threading.Thread(target=watch)
    thread.start()
    settings: dict[str, Any] = {
        "train": rows(ROWS),
        "loss": "cross_entropy",
        "batch_size": 8,
        "epochs": EPOCHS,
        "callbacks": [Slow(folder, until=until)],
        "checkpoints": {"every_steps": 5},
        "recovery": {"max_restarts": 1},
        "observe": QUIET,
        "run_dir": folder / "run",
    }
    try:
        return fb.fit(Net, cluster=cluster, **{**settings, **more})
    finally:
        over.set()
        thread.join()


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind that a run in `folder` has written."""
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]
