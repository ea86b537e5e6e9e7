"""Servers and workers that are killed while they train together."""

import json
from pathlib import Path
from typing import Any

import pytest
from toy import QUIET, SparseNet, assert_same_tables, assert_same_weights, make_clicks
from violence import KillAll, random_violence

import flambeau as fb

REPETITIONS = 20


def train(path: Path, consistency: Any, *callbacks: Any, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "loss": "bce",
        "label": "label",
        "optimizer": fb.optim("adam", lr=0.02),
        "batch_size": 8,
        "epochs": 4,
        "strategy": fb.ParameterServer(servers=2, consistency=consistency, staleness=4),
        "cluster": fb.Local(2),
        "checkpoints": {"every_steps": 5},
        "recovery": {"max_restarts": 4},
        "observe": QUIET,
        "callbacks": callbacks,
        "run_dir": path,
        **changes,
    }
    data = make_clicks(160)
    return fb.fit(SparseNet(prefetch=True), data, data, **arguments)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(tmp_path_factory.mktemp("undisturbed") / "run", "synchronous")


@pytest.mark.parametrize("seed", range(REPETITIONS))
def test_a_job_survives_kills(seed: int, undisturbed: Any, tmp_path: Path) -> None:
    consistency, kill = random_violence(seed, steps=30)
    result = train(tmp_path / "run", consistency, kill)
    assert (tmp_path / "run" / "struck").exists(), "nothing was killed"
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    rows = report["rows"]
    assert report["restarts"] == 1 if not kill.worker else report["restarts"] >= 1
    lost = rows.get("lost", 0)
    assert rows["read"] == rows["applied"] + rows["dropped"] + rows["repeated"] + lost
    assert rows["applied"] + lost == 4 * 160
    assert lost == 8 * report["updates_lost"]
    if consistency == "synchronous":
        assert_same_weights(undisturbed, result)
        assert_same_tables(undisturbed, result)
    else:
        # At most the five updates since the last checkpoint are lost.
        assert result.metrics["loss"] < undisturbed.metrics["loss"] + 0.1


def test_all_roles_that_are_lost_at_once_are_one_restart_and_lose_rows(tmp_path: Path) -> None:
    # With a bound on staleness, workers report each step at once.
    saving = {"every_steps": None, "every_epochs": None}
    changes = {"checkpoints": saving, "recovery": {"max_restarts": 1}}
    report = train(tmp_path / "run", "bounded", KillAll(30), **changes).report
    assert report["restarts"] == 1
    rows, lost = report["rows"], report["updates_lost"]
    assert lost > 0
    assert rows["lost"] == 8 * lost
    assert rows["applied"] + rows["lost"] == 4 * 160
    for server in report["servers"].values():
        assert server["version"] + lost == report["step"] == 80
