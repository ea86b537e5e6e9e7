"""`flambeau runs` and `flambeau diff` on runs made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flambeau.checkpoint import RunDirectory, mark_best
from flambeau.cli.app import app
from flambeau.config import CodeRef, FileData, JobSettings, OptimizerSpec

EVIL = "<script> [bold]"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make("runs/slow", 0.7, {"status": "finished", "rows_per_second": 10.0}, batch_size=4)
    make("runs/tries/fast", 0.9, {"status": "failed", "rows_per_second": 2000.0}, batch_size=8)
    make("runs/" + EVIL, 0.8, None, batch_size=8, optimizer=OptimizerSpec(name="sgd"))


def make(path: str, auc: float, report: dict[str, Any] | None, **settings: Any) -> None:
    run = RunDirectory(path)
    given = {"model": CodeRef(path="m:Net"), "train": FileData(path="x"), **settings}
    run.prepare(JobSettings(**given).model_dump(mode="json"), "auto")
    mark_best(run, 3, "auc", auc)
    if report is not None:
        values = {"step": 5, "metrics": {"auc": auc}, "rows": {"applied": 20}, "restarts": 0}
        run.report.write_text(json.dumps({**values, **report}))


def flambeau(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def names(*words: str) -> list[str]:
    result = flambeau("runs", "--json", *words)
    assert result.exit_code == 0, result.output
    return [run["name"] for run in json.loads(result.stdout)]


def test_runs_in_folders_of_folders_are_listed() -> None:
    text = flambeau("runs").stdout
    assert text.splitlines()[0].split()[:3] == ["name", "model", "strategy"]
    assert all(name in text for name in ("slow", "fast", EVIL, "not started"))


def test_the_best_or_the_fastest_run_comes_first() -> None:
    assert names("--sort", "metric") == ["fast", EVIL, "slow"]
    assert names("--sort", "speed") == ["fast", "slow", EVIL]
    assert names("--sort", "name") == [EVIL, "slow", "fast"]


def test_conditions_leave_some_runs() -> None:
    assert names("--where", "status=failed") == ["fast"]
    assert names("--where", "batch_size=8", "--where", "optimizer.name=s*") == [EVIL]
    assert names("--where", "max_steps=null", "--where", "name=slow") == ["slow"]


def test_another_metric_than_the_best_one_can_be_shown() -> None:
    (run,) = (
        run
        for run in json.loads(flambeau("runs", "--json", "--metric", "loss").stdout)
        if run["name"] == "slow"
    )
    assert (run["metric"], run["value"]) == ("loss", None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs", "nowhere"], "there is no folder nowhere"),
        (["runs", "--where", "status"], "--where status: write key=value"),
        (["diff", "runs", "runs/slow"], "runs is not a run directory: it has no job.yaml"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    result = flambeau(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")


def test_a_difference_names_settings_and_results() -> None:
    found = json.loads(flambeau("diff", "runs/slow", "runs/tries/fast", "--json").stdout)
    assert found["settings"] == {"batch_size": [4, 8]}
    assert found["results"]["auc"] == [0.7, 0.9]
    text = flambeau("diff", "runs/slow", "runs/tries/fast").stdout
    assert "batch_size  4          8" in text
    assert "status" in text


def test_runs_with_the_same_settings_are_said_to_have_them() -> None:
    assert "all settings are the same" in flambeau("diff", "runs/slow", "runs/slow").stdout
