"""What an earlier version saved is resumed, scored and loaded by this one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from make_saved_before import (
    SCORED,
    scores,
    with_logs,
    with_shorthands,
    with_tables,
    without_tables,
)
from saved_copy import copy_saved
from typer.testing import CliRunner

import flambeau as fb
from flambeau.cli.app import app
from flambeau.data.sources.text.criteo import open_criteo

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


@pytest.mark.parametrize("name", list(SCORED))
def test_hashed_crossed_and_filled_columns_have_the_same_scores(saved: Path, name: str) -> None:
    before = json.loads(Path("scores.json").read_text())[name]
    assert scores(f"runs/{name}", SCORED[name]) == pytest.approx(before, abs=1e-6)


def test_an_export_with_shorthands_takes_the_same_columns(saved: Path) -> None:
    before = json.loads(Path("scores.json").read_text())["shorthands"]
    rows = pa.csv.read_csv("visits/0.csv")
    predictor = fb.Predictor.load("shorthands-export")
    whole = predictor.predict(rows.drop(["clicked"]))
    assert whole["probability"].to_pylist() == pytest.approx(before, abs=1e-6)
    assert whole["user"].to_pylist() == rows["user"].to_pylist()
    one = [predictor.predict([row])["probability"][0].as_py() for row in rows.to_pylist()]
    assert one == pytest.approx(before, abs=1e-6)


def test_an_export_of_logs_takes_logarithms_and_hashes(saved: Path) -> None:
    before = json.loads(Path("scores.json").read_text())["logs"]
    source = open_criteo("logs.txt")
    batches = [b for shard in source.shards() for b in source.read(shard, source.schema.names)]
    found = fb.Predictor.load("logs-export").predict(pa.Table.from_batches(batches))
    assert np.allclose(found["probability"], before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("train", [with_shorthands, with_logs])
def test_runs_with_shorthands_are_resumed(saved: Path, train: Callable[..., fb.Result]) -> None:
    run = {with_shorthands: "runs/shorthands", with_logs: "runs/logs"}[train]
    result = train(run, epochs=2)
    assert resumed_step(saved / run) == 4
    assert result.report["step"] == 8
