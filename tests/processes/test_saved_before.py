"""What an earlier version saved is resumed, scored and loaded by this one."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from make_saved_before import with_tables, without_tables
from saved_copy import copy_saved
from typer.testing import CliRunner

import flambeau as fb
from flambeau.cli.app import app

ROW = {"user": 3, "item": 1003, "age": 0.5}


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(copy_saved(tmp_path / "saved"))
    return tmp_path / "saved"


def flambeau(*words: str) -> str:
    done = CliRunner().invoke(app, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def resumed_step(run: Path) -> int:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return int([event for event in events if event["kind"] == "job_start"][-1]["resumed_step"])


def test_a_run_with_tables_is_resumed(saved: Path) -> None:
    result = with_tables("runs/tables", epochs=2)
    assert resumed_step(saved / "runs/tables") == 12
    assert result.report["step"] == 24
    assert result.report["rows"]["applied"] == 480


def test_a_run_without_tables_is_resumed(saved: Path) -> None:
    result = without_tables("runs/dense", epochs=2)
    assert resumed_step(saved / "runs/dense") == 5
    assert result.report["step"] == 10


def test_predictions_are_completed(saved: Path) -> None:
    old = {path.name: path.read_bytes() for path in Path("predictions").glob("part-*")}
    command = ["predict", "runs/tables", "clicks", "--out", "predictions", "--part-rows", "60"]
    flambeau(*command, "--workers", "2")
    assert json.loads(Path("predictions/_manifest.json").read_text())["complete"]
    assert pyarrow.parquet.read_table("predictions").num_rows == 240
    assert {name: Path("predictions", name).read_bytes() for name in old} == old


def test_a_run_and_an_export_give_the_same_scores(saved: Path) -> None:
    of_run = fb.Predictor.load("runs/tables").predict([ROW])
    of_export = fb.Predictor.load("export").predict([ROW])
    assert of_run["probability"] == pytest.approx(of_export["probability"], abs=1e-6)
    assert of_run["probability"] != pytest.approx([0.5], abs=1e-3)


def test_a_run_is_evaluated_as_then(saved: Path) -> None:
    before = json.loads(Path("runs/tables/report.json").read_text())["metrics"]["auc"]
    assert f"{before:.6f}" in flambeau("evaluate", "runs/tables")


def test_a_run_is_exported_again(saved: Path) -> None:
    flambeau("export", "runs/tables", "--out", "again")
    again, before = (fb.Predictor.load(name).predict([ROW]) for name in ("again", "export"))
    assert again["probability"] == pytest.approx(before["probability"], abs=1e-6)
