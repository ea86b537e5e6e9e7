"""Predictions by several processes, also if they are killed; exports that are read elsewhere."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy import QUIET, Net, SparseNet, make_clicks

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.clusters.process_starter import FORK_SERVER_MODULE
from flambeau.driver.parts import run_parts
from flambeau.driver.parts.predict import predict_run
from flambeau.errors import ConfigError, DataError, WorkerLostError
from flambeau.runs.prediction import PredictionOptions
from flambeau.runs.trained_run import read_settings

pytestmark = pytest.mark.usefixtures("loaded_once")

PREDICT = [sys.executable, "-m", "flambeau", "predict"]
TESTS = Path(__file__).parent


def arrow(columns: dict[str, np.ndarray]) -> pa.Table:
    flat = {name: v if v.ndim == 1 else list(v) for name, v in columns.items()}
    return pa.table({**flat, "row": np.arange(len(columns["label"]))})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("trained")
    pq.write_table(arrow(make_clicks(400)), folder / "clicks.parquet", row_group_size=10)
    result = fb.fit(
        SparseNet(),
        str(folder / "clicks.parquet"),
        label="label",
        loss="bce",
        keys=["row"],
        table_optimizer=fb.optim("adagrad", lr=0.1),
        observe=QUIET,
        run_dir=str(folder / "run"),
    )
    return result, folder


def command(folder: Path, out: Path) -> list[str]:
    data = str(folder / "clicks.parquet")
    options = ["--workers", "2", "--part-rows", "10", "--batch-size", "1"]
    return [*PREDICT, str(folder / "run"), data, "--out", str(out), *options]


def parts(out: Path) -> int:
    return len(list(out.glob("part-*.parquet"))) if out.is_dir() else 0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, str(TESTS)]))}


def test_after_a_kill_the_same_command_goes_on_and_every_row_is_there_once(
    trained: Any, tmp_path: Path
) -> None:
    result, folder = trained
    out = tmp_path / "scores"
    ended = threading.Event()
    with subprocess.Popen(command(folder, out), env=environment()) as process:
        while parts(out) < 3 and process.poll() is None:
            ended.wait(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = parts(out)
    assert 0 < done < 40
    _wait_until_quiet(out)
    there = min(out.glob("part-*.parquet"))
    written = there.stat().st_mtime_ns
    again = subprocess.run(
        command(folder, out), env=environment(), check=True, capture_output=True, text=True
    )
    assert "400 rows written" in again.stdout
    assert there.stat().st_mtime_ns == written
    found = pq.read_table(out)
    assert found["row"].to_pylist() == list(range(400))
    expected = result.predict(str(folder / "clicks.parquet"))
    np.testing.assert_allclose(found["probability"], expected["probability"], atol=1e-6)
    assert sorted(path.name for path in out.iterdir() if path.name[0] == ".") == []


def _wait_until_quiet(out: Path) -> None:
    """Until the processes of a killed command have ended themselves."""
    count, deadline = -1, time.monotonic() + 30
    while parts(out) != count and time.monotonic() < deadline:
        count = parts(out)
        threading.Event().wait(0.3)


def forked() -> list[psutil.Process]:
    """The processes that fork servers of this process have forked."""
    children = psutil.Process().children()  # other tests' engines, too
    # One of an earlier test may have ended since, of which nothing but its number is left.
    alive = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
    fork_servers = [each for each in alive if FORK_SERVER_MODULE in each.cmdline()]
    return [each for fork_server in fork_servers for each in fork_server.children()]


def still_forked() -> list[psutil.Process]:
    """Those that do not end by themselves: what was killed takes a moment on a busy machine."""
    return list(psutil.wait_procs(forked(), timeout=5)[1])


def test_the_part_of_a_killed_process_is_predicted_by_another_one(
    trained: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, folder = trained
    before = sorted(result.run_dir.rglob("*"))
    events = (result.run_dir / "events.jsonl").read_bytes()
    counts: list[int] = []
    killed: list[psutil.Process] = []

    def on_rows(rows: int) -> None:
        counts.append(rows)
        if rows and not killed:
            killed.append(forked()[0])
            killed[0].kill()

    run, data = RunDirectory(result.run_dir), str(folder / "clicks.parquet")
    options = PredictionOptions(workers=2, batch_size=1, part_rows=10)
    out = tmp_path / "scores"
    with run.lock():  # others may train there, or predict
        assert predict_run(run, read_settings(run), "latest", data, out, options, on_rows) == 400
    assert killed
    assert "was killed by SIGKILL" in capfd.readouterr().err
    assert sum(counts) == 400
    assert pq.read_table(out)["row"].to_pylist() == list(range(400))
    assert sorted(result.run_dir.rglob("*")) == before
    assert (result.run_dir / "events.jsonl").read_bytes() == events


def test_more_lost_processes_than_may_be_replaced_are_an_error(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, folder = trained
    monkeypatch.setattr(run_parts, "RESTARTS", 0)

    def on_rows(rows: int) -> None:
        for process in forked() if rows else ():
            process.kill()

    run, data = RunDirectory(result.run_dir), str(folder / "clicks.parquet")
    options = PredictionOptions(workers=2, batch_size=1, part_rows=10)
    with pytest.raises(WorkerLostError, match=r"SIGKILL\. Run the same command to resume\."):
        predict_run(run, read_settings(run), "latest", data, tmp_path / "scores", options, on_rows)


def test_ctrl_c_ends_everything_and_the_same_call_resumes(trained: Any, tmp_path: Path) -> None:
    result, folder = trained
    run, data = RunDirectory(result.run_dir), str(folder / "clicks.parquet")
    settings, out = read_settings(run), tmp_path / "scores"
    options = PredictionOptions(workers=2, batch_size=1, part_rows=10)

    def interrupt(rows: int) -> None:
        if rows:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        predict_run(run, settings, "latest", data, out, options, interrupt)
    assert not still_forked()
    assert parts(out) < 40
    options = PredictionOptions(workers=1, part_rows=10)
    assert predict_run(run, settings, "latest", data, out, options) == 400
    assert pq.read_table(out)["row"].to_pylist() == list(range(400))
    assert sorted(path.name for path in out.iterdir() if path.name[0] == ".") == []


def test_data_that_does_not_fit_is_an_error_of_the_data(trained: Any, tmp_path: Path) -> None:
    result, _ = trained
    broken = arrow(make_clicks(40))
    at = broken.schema.get_field_index("x")
    values = [*broken["x"].to_pylist()[:39], None]
    pq.write_table(
        broken.set_column(at, "x", pa.array(values)), tmp_path / "broken.parquet", row_group_size=10
    )
    with pytest.raises(DataError, match="column 'x'"):
        result.predict(str(tmp_path / "broken.parquet"), out=tmp_path / "scores")
    run, options = RunDirectory(result.run_dir), PredictionOptions(workers=2, part_rows=10)
    with pytest.raises(DataError, match=r"^column 'x'") as caught:
        predict_run(
            run,
            read_settings(run),
            "latest",
            str(tmp_path / "broken.parquet"),
            tmp_path / "others",
            options,
        )
    assert "Traceback" not in str(caught.value)


def test_data_in_memory_is_predicted_here(trained: Any, tmp_path: Path) -> None:
    result, _ = trained
    data = {**make_clicks(30), "row": np.arange(30)}
    assert result.predict(data, out=tmp_path / "scores") == 30
    assert pq.read_table(tmp_path / "scores")["row"].to_pylist() == list(range(30))
    with pytest.raises(ConfigError, match="predicted here"):
        result.predict(data, out=tmp_path / "others", workers=2)


def test_two_processes_evaluate_as_one_does(trained: Any) -> None:
    result, folder = trained
    data, metrics = str(folder / "clicks.parquet"), ["auc", "accuracy", "logloss"]
    alone = result.evaluate(data, metrics)
    together = result.evaluate(data, metrics, workers=2)
    assert list(together) == list(alone)
    assert together["accuracy"] == alone["accuracy"]
    assert together == pytest.approx(alone, rel=1e-5)
    with pytest.raises(ConfigError, match="evaluated here"):
        result.evaluate({**make_clicks(30), "row": np.arange(30)}, metrics, workers=2)
    with pytest.raises(ConfigError, match="workers=0"):
        result.evaluate(data, metrics, workers=0)


READ = """
import json, sys
import numpy as np, pyarrow.parquet as pq, torch
from safetensors.torch import load_file

folder, data = sys.argv[1:]
binding = json.load(open(f"{folder}/binding.json"))
rows = pq.read_table(data).slice(0, 5)
arguments = {"x": np.array(rows["x"].to_pylist()), "items": np.array(rows["items"].to_pylist()),
             "user": rows["user"].to_numpy()}
given = []
for entry in binding["graph"]["inputs"]:
    if entry["argument"] is not None:
        given.append(torch.from_numpy(arguments[entry["argument"]]))
        continue
    lookup = binding["lookups"][entry["lookup"]]
    table = binding["tables"][lookup["table"]]
    held = load_file(f"{folder}/{table['file']}")
    piece = lookup["pieces"][0]
    ids = torch.from_numpy(arguments[piece["argument"]]).reshape(5, -1)
    places = torch.searchsorted(held["ids"], ids).clamp(max=len(held["ids"]) - 1)
    found = held["values"][places]
    found[held["ids"][places] != ids] = torch.tensor(table["default"], dtype=found.dtype)
    given.append(found.sum(1))
output = torch.export.load(f"{folder}/{binding['graph']['file']}").module()(*given)[0]
assert "flambeau" not in sys.modules
print(json.dumps(torch.sigmoid(output).tolist()))
"""


def test_an_export_is_read_without_flambeau(trained: Any, tmp_path: Path) -> None:
    result, folder = trained
    made = [*PREDICT[:-1], "export", str(folder / "run"), "--out", str(tmp_path / "out")]
    subprocess.run([*made, "--inside-mb", "0"], env=environment(), check=True)
    data = str(folder / "clicks.parquet")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "out"), data],
        check=True,
        capture_output=True,
        text=True,
    )
    expected = result.predict(data)["probability"].to_pylist()[:5]
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-6)


def test_a_model_trained_on_arrays_is_exported_without_them(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 6))
    run = str(tmp_path / "run")
    result = fb.fit(
        Net(), (x, np.zeros(20, np.int64)), loss="cross_entropy", observe=QUIET, run_dir=run
    )
    made = [*PREDICT[:-1], "export", run, "--out", str(tmp_path / "out")]
    subprocess.run([*made, "--format", "torchscript"], env=environment(), check=True)
    found = fb.Predictor.load(tmp_path / "out", trust=True).predict({"x": x})
    expected = result.predict((x,))
    ours, theirs = (np.array(t["probabilities"].to_pylist()) for t in (found, expected))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
