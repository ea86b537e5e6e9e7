"""Jobs on several hosts, of which one is lost: what goes on, what starts again, what is left."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import HostCluster, Hosts
from toy import QUIET, Net, Slow, SparseNet, make_clicks, make_data

import flambeau as fb
from flambeau.errors import WorkerLostError

pytestmark = pytest.mark.usefixtures("loaded_once")

SYNCHRONOUS = {
    "all-reduce": fb.AllReduce(),
    "rounds": fb.ParameterServer(servers=3),
    "hybrid": fb.Hybrid(servers=3),
}
ELASTIC = {
    "bounded": fb.ParameterServer(servers=3, consistency="bounded", staleness=4),
    "asynchronous": fb.ParameterServer(servers=3, consistency="asynchronous"),
}
STRATEGIES = SYNCHRONOUS | ELASTIC
LOSSES: list[Callable[[HostCluster, int], None]] = [HostCluster.kill, HostCluster.freeze]
ROWS, EPOCHS = 480, 3


def fit(run_dir: Path, strategy: Any, act: Callable[[], None], **more: Any) -> Any:
    """Train on three hosts; `act` when workers are in the midst of it."""
    dense = isinstance(strategy, fb.AllReduce)
    x, y = make_data(ROWS)
    over = threading.Event()

    def watch() -> None:
        while not (run_dir.parent / "begun").exists() and not over.is_set():
            time.sleep(0.02)
        if not over.is_set():
            act()

    thread = threading.Thread(target=watch)
    thread.start()
    settings: dict[str, Any] = {
        "loss": "cross_entropy" if dense else "bce",
        "label": None if dense else "label",
        "strategy": strategy,
        "cluster": Hosts(workers=3, start_timeout=60),
        "batch_size": 8,
        "epochs": EPOCHS,
        "callbacks": [Slow(0.05, begun_at=12, folder=run_dir.parent)],
        "checkpoints": {"every_steps": 5},
        "recovery": {"max_restarts": 1, "heartbeat_timeout": 4.0},
        "observe": QUIET,
        "run_dir": run_dir,
    }
    try:
        train = (x, y) if dense else make_clicks(ROWS)
        return fb.fit(Net() if dense else SparseNet(), train, **{**settings, **more})
    finally:
        over.set()
        thread.join()


def told(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.mark.parametrize("lose", LOSSES, ids=["killed", "silent"])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_only_the_lost_host_is_replaced(
    tmp_path: Path, strategy: Any, lose: Callable[[HostCluster, int], None]
) -> None:
    run_dir = tmp_path / "run"
    result = fit(run_dir, strategy, lambda: lose(HostCluster.current, 1))
    rows = result.report["rows"]
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert HostCluster.current.restarted == [[1]]
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"] + rows.get(
        "lost", 0
    )
    assert rows["applied"] + rows["dropped"] + rows.get("lost", 0) == ROWS * EPOCHS
    elastic = strategy in ELASTIC.values()
    assert len(told(run_dir, "generation")) == (1 if elastic else 2)
    lost = {(event["role"], event["rank"], event["host"]) for event in told(run_dir, "worker_lost")}
    assert ("worker", 1, "127.0.0.3") in lost


@pytest.mark.parametrize(
    ("strategy", "lose"),
    [(fb.AllReduce(), HostCluster.kill), (ELASTIC["asynchronous"], HostCluster.freeze)],
    ids=["all-reduce-killed", "asynchronous-silent"],
)
def test_without_restarts_the_job_fails_with_the_name_of_the_host(
    tmp_path: Path, strategy: Any, lose: Callable[[HostCluster, int], None]
) -> None:
    recovery = {"heartbeat_timeout": 4.0}
    with pytest.raises(WorkerLostError, match=r"agent 1 on 127\.0\.0\.3 ended before its time: "):
        fit(tmp_path / "run", strategy, lambda: lose(HostCluster.current, 1), recovery=recovery)
    assert not HostCluster.current.restarted


def test_hosts_without_a_shared_folder_send_their_checkpoints(tmp_path: Path) -> None:
    cluster = Hosts(workers=3, start_timeout=60, shared_files=False)
    result = fit(
        tmp_path / "run",
        ELASTIC["asynchronous"],
        lambda: HostCluster.current.kill(2),
        cluster=cluster,
    )
    rows = result.report["rows"]
    assert (result.report["status"], result.report["restarts"]) == ("finished", 1)
    assert rows["applied"] + rows["dropped"] + rows.get("lost", 0) == ROWS * EPOCHS


def test_hosts_with_several_workers_each(tmp_path: Path) -> None:
    result = fit(
        tmp_path / "run",
        fb.AllReduce(),
        lambda: None,
        cluster=Hosts(workers=4, agents=2),
    )
    assert result.report["rows"]["applied"] == ROWS * EPOCHS
    ranks = fb.run(where, cluster=Hosts(workers=4, agents=2))
    assert ranks == [["0", "2", "0"], ["1", "2", "0"], ["0", "2", "1"], ["1", "2", "1"]]


def where() -> list[str]:
    return [os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")]
