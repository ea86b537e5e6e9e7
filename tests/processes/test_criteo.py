"""`flambeau criteo`, from raw logs to predictions: each stage, killed and resumed, on odd logs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
from flambeau.data.generated import generate_clicks

pytestmark = pytest.mark.usefixtures("loaded_once")

COMMAND = [sys.executable, "-m", "flambeau", "criteo"]
#: A model that takes no time.
TINY = ["args.embedding_dim=4", "args.bottom=[8]", "args.top=[8]", "batch_size=1024"]
#: With prepared features: all fields are in the table, which learns sooner.
IN_TABLE = ["args.dense_below=1"]
DAYS = ["--mode", "small", "--test-day", "6"]
STAGES = ("prepare", "train", "evaluate", "predict")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("criteo") / "logs"
    generate_clicks(folder, rows=100_000, ids=2_000)
    return folder


def criteo(logs: Path, out: Path, *more: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    tiny = TINY if "--no-prepare" in more else TINY + IN_TABLE
    command = [*COMMAND, str(logs), "--out", str(out), *more, *tiny]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=280)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def records(out: Path, way: str = "prepared") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "criteo.json").read_text())[way]
    return found


def probabilities(folder: Path) -> np.ndarray:
    return pq.read_table(folder)["probability"].to_numpy()


def log_loss(predicted: pa.Table) -> float:
    labels, given = predicted["label"].to_numpy(), predicted["probability"].to_numpy()
    return float(-np.where(labels > 0, np.log(given), np.log1p(-given)).mean())


@pytest.fixture(scope="module")
def finished(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("criteo") / "out"
    done = criteo(logs, out, *DAYS, "--min-count", "2", "--lines", "10")
    assert "[0] Finished training it 10/28 of epoch 0, " in done.stderr
    for stage in STAGES:
        assert stage in done.stdout
    sizes = records(out)["prepare"]["sizes"]
    assert f"C1 {sizes['C1']}, C2 {sizes['C2']}, " in done.stderr
    assert f"C1 {sizes['C1']}, C2 {sizes['C2']}, " in " ".join(done.stdout.split())
    return out


def test_all_stages_are_done_once(logs: Path, finished: Path) -> None:
    before = (finished / "criteo.json").read_bytes()
    again = criteo(logs, finished, *DAYS, "--min-count", "2", "--lines", "10")
    assert again.stderr.count("done before") == len(STAGES)
    assert (finished / "criteo.json").read_bytes() == before
    refused = criteo(logs, finished, *DAYS, "--min-count", "2", "seed=7", code=2)
    assert "Choose another --out for a new run" in refused.stderr
    assert (finished / "criteo.json").read_bytes() == before
    found = records(finished)
    assert all(found[stage]["done"] for stage in STAGES)
    assert found["prepare"]["subsets"] == {"train": 57_142, "valid": 7_143, "test": 7_143}
    assert found["evaluate"]["metrics"]["auc"] > 0.6


def test_the_export_predicts_raw_rows_as_the_run_does_prepared_ones(
    logs: Path, finished: Path
) -> None:
    predicted = pq.read_table(finished / "predictions" / "test")
    evaluation = json.loads((finished / "evaluation.json").read_text())
    assert log_loss(predicted) == pytest.approx(evaluation["logloss"], abs=1e-5)


def test_the_export_takes_one_raw_row(logs: Path, finished: Path) -> None:
    lines = (logs / "day_6.tsv").read_text().splitlines()
    names = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    values = dict(zip(names, lines[-1].split("\t"), strict=True))
    row = {
        name: (float(value) if name[0] == "I" else value) if value else None
        for name, value in values.items()
        if name != "label"
    }
    found = fb.Predictor.load(finished / "export").predict([row])["probability"][0].as_py()
    assert found == pytest.approx(probabilities(finished / "predictions" / "test")[-1], abs=1e-6)


def test_another_number_of_processes_predicts_the_same(
    logs: Path, finished: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "flambeau", "predict", str(finished / "export")]
    data, more = str(logs / "day_6.tsv"), ["--workers", "3", "--part-rows", "2000"]
    subprocess.run([*command, data, "--out", str(tmp_path / "scores"), *more], check=True)
    found = probabilities(tmp_path / "scores")
    expected = probabilities(finished / "predictions" / "test")
    np.testing.assert_allclose(found[-len(expected) :], expected, atol=1e-6)


def test_both_ways_are_in_the_table(logs: Path, finished: Path) -> None:
    done = criteo(logs, finished, *DAYS, "--no-prepare", "--evaluate-every", "10")
    assert "From prepared features" in done.stdout
    assert "From the logs, with hashed ids" in done.stdout
    found = records(finished, "raw")
    assert found["train"]["rows"] == 57_142
    assert found["evaluate"]["rows"] == found["predict"]["rows"] == 7_143
    assert found["evaluate"]["metrics"]["auc"] > 0.6
    predicted = pq.read_table(finished / "no-prepare" / "predictions" / "test")
    assert log_loss(predicted) == pytest.approx(found["evaluate"]["metrics"]["logloss"], abs=1e-5)


def test_it_is_killed_in_every_stage_and_resumes(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for stage in STAGES:
        command = [*COMMAND, str(logs), "--out", str(out), *DAYS, *TINY, *IN_TABLE]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            for line in running.stderr:
                if line.startswith(f"{stage}:") and "done before" not in line:
                    running.send_signal(signal.SIGKILL)
    criteo(logs, out, *DAYS)
    found = records(out)
    assert all(found[stage]["done"] for stage in STAGES)
    assert found["train"]["rows"] == 57_142
    assert len(probabilities(out / "predictions" / "test")) == 7_143


def test_kaggle_predicts_rows_without_labels_and_stops_at_its_target(
    logs: Path, tmp_path: Path
) -> None:
    raw = tmp_path / "kaggle"
    raw.mkdir()
    text = "".join((logs / f"day_{day}.tsv").read_text() for day in range(3))
    lines = text.splitlines(keepends=True)
    (raw / "train.txt").write_text("".join(lines[:14_000]))
    unlabelled = [line.partition("\t")[2] for line in lines[14_000:14_500]]
    (raw / "test.txt").write_text("".join(unlabelled))
    out = tmp_path / "out"
    criteo(raw, out, "--target-auc", "0.5", "--evaluate-every", "2", "--workers", "1")
    found = records(out)
    assert found["prepare"]["subsets"] == {"train": 12_000, "valid": 1_000, "test": 1_000}
    assert found["train"]["stopped_early"]
    assert found["train"]["rows"] < 12_000
    assert len(probabilities(out / "predictions" / "unlabelled")) == 500


def test_small_logs_have_no_tables_and_labels_may_be_minus_1(logs: Path, tmp_path: Path) -> None:
    """All fields have few values; and the logs change after their features were prepared."""
    lines = (logs / "day_0.tsv").read_text().splitlines(keepends=True)[:2001]
    lines = [f"-1{line[1:]}" if line[0] == "0" else line for line in lines]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.txt").write_text("".join(lines))
    out = tmp_path / "out"
    done = criteo(tmp_path / "raw", out, "--only", "prepare")
    assert "fb.Predictor" not in done.stdout
    done = criteo(tmp_path / "raw", out)
    assert "fb.Predictor" in done.stdout
    found = records(out)
    assert found["evaluate"]["rows"] == found["predict"]["rows"]
    predicted = pq.read_table(out / "predictions" / "test")
    assert log_loss(predicted) == pytest.approx(found["evaluate"]["metrics"]["logloss"], abs=1e-5)
    (tmp_path / "raw" / "train.txt").write_text("".join(reversed(lines)))
    done = criteo(tmp_path / "raw", out, "--only", "prepare")
    assert "data changed" in done.stderr


def test_odd_rows_are_an_error_or_left_out(logs: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    lines = (logs / "day_0.tsv").read_text().splitlines()[:3000]
    bad = ["1\t2\t3", lines[0] + "\textra"]  # fields are missing; a tab too many
    (odd / "day_0").write_bytes("\r\n".join([*lines, *bad, ""]).encode())
    test = (logs / "day_6.tsv").read_text().splitlines(keepends=True)
    (odd / "day_6").write_text("".join(line for line in test if line[0] == "0"))
    out = tmp_path / "out"
    given = [*DAYS, "--train-days", "0-2", "--workers", "1"]
    assert "no file for days 1, 2" in criteo(odd, out, *given, code=2).stderr
    (odd / "day_2").write_bytes(b"")
    assert "day_2 is empty" in criteo(odd, out, *given, code=2).stderr
    failed = criteo(odd, out, *DAYS, "--train-days", "0", "--workers", "1", code=2)
    assert "line 3001: " in failed.stderr
    assert "to leave out bad rows and count them: --on-bad-row skip)" in failed.stderr
    done = criteo(odd, out, *given, "--on-bad-row", "skip")
    assert "no file for days 1, 2" in done.stderr
    assert "the newest: the rows to validate with have no AUC" in done.stderr
    assert records(out)["prepare"]["subsets"]["train"] == 3000
    assert records(out)["predict"]["done"]


def test_the_example(logs: Path, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "criteo" / "run.sh"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(script), str(logs), *TINY, *IN_TABLE],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=True,
    )
    assert len(probabilities(tmp_path / "runs/criteo-example/predictions/test")) == 7_143


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--mode", "small"], "no file for day 23"),
        ([*DAYS, "run_dir=elsewhere"], "the run is in the folder of --out"),
        ([*DAYS, "--only", "predict"], "run --only train"),
        ([*DAYS, "--model", "dlrn"], "did you mean"),
        ([*DAYS, "epoch=2"], "did you mean 'epochs'?"),
        ([*DAYS, "--memory", "lots"], "memory='lots'"),
    ],
)
def test_mistakes_are_one_line(logs: Path, tmp_path: Path, given: list[str], message: str) -> None:
    done = criteo(logs, tmp_path / "out", *given, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
