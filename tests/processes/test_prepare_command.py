"""`flambeau prepare` as a user meets it: killed, interrupted and resumed, and what it shows."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
import flambeau.features as ft

pytestmark = pytest.mark.usefixtures("loaded_once")

FLAMBEAU = [sys.executable, "-m", "flambeau"]
ROWS = 270_000  # more than a part has: a file is a part of its own

#: Waits as long as there is a file `block`, and says which process does.
OWN = """
import os
import time
from pathlib import Path

import pyarrow.compute as pc


def twice(arrays):
    while Path("block").exists():
        Path(f"waiting-{os.getpid()}").touch()
        time.sleep(0.01)
    return {"twice": pc.add(arrays["item"], arrays["item"])}
"""

FEATURES = """
data: logs/day_*.parquet
split: {by_file: {train: "day_[0-1].parquet", test: day_2.parquet}}
operations:
  - custom: {function: own:twice, columns: item, out: {twice: int64}}
  - categorify: {columns: [user, item], min_count: 2}
cluster: {local: {workers: 2}}
out: out
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of three days."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("days") / "logs"
    folder.mkdir()
    for day in range(3):
        user = pa.array(rng.integers(0, 500, ROWS)).cast(pa.string())
        table = pa.table({"user": user, "item": rng.integers(0, 1000, ROWS)})
        pq.write_table(table, folder / f"day_{day}.parquet", row_group_size=ROWS)
    return folder


@pytest.fixture(scope="module")
def whole(logs: Path) -> dict[str, bytes]:
    """What one process makes without interruption, in Python."""
    (logs.parent / "own.py").write_text(OWN)
    steps = [
        ft.Custom(function="own:twice", columns="item", out={"twice": "int64"}),
        ft.Categorify(["user", "item"], min_count=2),
    ]
    split = ft.by_file(train="day_[0-1].parquet", test="day_2.parquet")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(logs.parent)
        monkeypatch.syspath_prepend(str(logs.parent))
        parts = ft.Pipeline(steps).fit_transform(
            "logs/day_*.parquet", split=split, out="whole", observe={"progress": "none"}
        )
        return contents(parts.folder)


@pytest.fixture
def work(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the logs, a file of features, and a module beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").symlink_to(logs)
    (tmp_path / "features.yaml").write_text(FEATURES)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def prepare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*FLAMBEAU, "prepare", "features.yaml", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def wait_for(what: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def start() -> subprocess.Popen[str]:
    """Start the command, and wait until its workers wait in the first pass."""
    Path("block").touch()
    process = subprocess.Popen(
        [*FLAMBEAU, "prepare", "features.yaml"], stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: len(list(Path().glob("waiting-*"))) == 2, process)
    return process


def waiting() -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in Path().glob("waiting-*"))


def contents(folder: Path) -> dict[str, bytes]:
    paths = (p for p in folder.rglob("*") if p.is_file() and p.name != "preparation.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_it_says_what_is_done_and_what_it_took(work: Path, whole: dict[str, bytes]) -> None:
    done = prepare("--memory", "100M", "--report")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == f"preparing 810,000 rows, {work / 'out'}"
    stages = ["gather statistics", "finish statistics", "write features"]
    ended = [line.partition(":")[0] for line in lines if " in " in line or "finish" in line]
    assert [line for line in ended if line[0].isdigit()] == [
        f"{number}/3 {stage}" for number, stage in enumerate(stages, start=1)
    ]
    assert lines[-2].startswith("vocabularies: user 501, item 1,001")
    assert done.stdout.splitlines() == [
        f"train: 540,000 rows in {work / 'out' / 'train'}",
        f"test: 270,000 rows in {work / 'out' / 'test'}",
        f"pipeline: {work / 'out' / 'pipeline'}",
        f"report: {work / 'out' / 'report.html'}",
    ]
    Path("out/report.html").unlink()
    taken = json.loads(Path("out/preparation.json").read_bytes())
    assert [stage["stage"] for stage in taken["stages"]] == stages
    assert [stage["rows"] for stage in taken["stages"]] == [810_000, 0, 810_000]
    assert all(stage["peak_bytes"] > 10 << 20 for stage in taken["stages"])
    assert contents(Path("out")) == whole


def test_a_killed_worker_is_replaced(work: Path, whole: dict[str, bytes]) -> None:
    process = start()
    os.kill(waiting()[0], signal.SIGKILL)
    Path("block").unlink()
    _, shown = process.communicate(timeout=240)
    assert process.returncode == 0, shown
    assert "lost: " in shown
    assert contents(Path("out")) == whole


def test_a_killed_command_resumes(work: Path, whole: dict[str, bytes]) -> None:
    process = start()
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    Path("block").unlink()
    psutil.wait_procs([each for each in below if each.pid in waiting()], timeout=20)
    assert not Path("out/prepared.json").exists()
    assert prepare().returncode == 0
    assert contents(Path("out")) == whole


def test_control_c_ends_it_and_says_how_to_resume(work: Path, whole: dict[str, bytes]) -> None:
    process = start()
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    assert shown.splitlines()[-1] == "Stopped. Run the same command to resume."
    assert "Traceback" not in shown
    Path("block").unlink()
    again = prepare()
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[1] == "resuming what was interrupted"
    assert contents(Path("out")) == whole


def test_mistakes_end_it_without_a_traceback(work: Path) -> None:
    (work / "other").mkdir()
    (work / "other/thesis.tex").write_text("mine")
    for arguments, message in (
        (["--out", "other"], "other has files that are no prepared features; give another folder"),
        (["operations=[{log: usr}]"], "operation 1 (log): there is no column 'usr'; did you mean"),
        (["data=nothing-*.csv"], "no file matches 'nothing-*.csv'"),
        (["~out"], "features.yaml: 'out' is missing"),
        (["split={by_file: {train: night_*}}"], "no file matches train='night_*'"),
    ):
        done = prepare(*arguments)
        assert done.returncode == 2, done.stderr
        assert done.stderr.splitlines()[-1].startswith("error: ")
        assert message in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("features", ["features.yaml", "out", "out/pipeline"])
def test_a_job_file_names_its_features(features: str, work: Path) -> None:
    text = "operations: [{categorify: {columns: [user, item], min_count: 2}}]\ndata: logs"
    Path("features.yaml").write_text(text)
    if features.startswith("out"):
        assert prepare("--out", "out").returncode == 0
    job = f"""
        model: deepfm
        args: {{fields: 2, dense: 0, hidden: [4]}}
        train: rows.parquet
        features: {features}
        inputs: {{ids: [user, item]}}
        label: label
        loss: bce
        max_steps: 2
    """
    Path("job.yaml").write_text(job.replace("\n        ", "\n"))
    table = pq.read_table("logs/day_0.parquet").slice(0, 2000)
    label = pa.array(np.arange(2000) % 2, pa.float32())
    pq.write_table(table.append_column("label", label), "rows.parquet")
    done = subprocess.run(
        [*FLAMBEAU, "train", "job.yaml"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert ft.Pipeline.load("runs/job/code/features").sizes_.keys() == {"user", "item"}


LABELLED = """
data: logs
operations:
  - custom: {function: own:twice, columns: item, out: {twice: int64}}
  - categorify: {columns: [user, twice]}
"""

JOB = """
model: deepfm
args: {fields: 2, dense: 0, hidden: [4]}
train: logs/day_*.parquet
features: features.yaml
inputs: {ids: [user, twice]}
label: item
loss: mse
max_steps: 2
batch_size: 64
strategy: hybrid
cluster: {local: {workers: 2}}
run_dir: run
"""


def train() -> subprocess.Popen[str]:
    command = [*FLAMBEAU, "train", "job.yaml"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_job_fits_its_pipeline_with_its_workers_and_resumes_that(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(work))
    Path("features.yaml").write_text(LABELLED)
    Path("job.yaml").write_text(JOB)
    Path("block").touch()
    process = train()
    wait_for(lambda: len(waiting()) == 2, process)
    assert process.pid not in waiting()
    os.kill(process.pid, signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    assert Path("run/.flambeau-fit/identity.json").exists()
    Path("block").unlink()
    process = train()
    _, shown = process.communicate(timeout=240)
    assert process.returncode == 0, shown
    assert not Path("run/.flambeau-fit").exists()
    found = ft.Pipeline.load("run/code/features", trust=True)
    expected = ft.Pipeline(found.operations).fit("logs/day_*.parquet", observe={"progress": "none"})
    assert found.digest == expected.digest


def test_a_pipeline_is_fitted_alike_by_any_cluster(work: Path) -> None:
    steps = [ft.FillMissing("item", strategy="mean"), ft.Categorify("user"), ft.Log("item")]
    quiet = {"progress": "none"}
    here = ft.Pipeline(steps).fit("logs/day_*.parquet", observe=quiet)
    there = ft.Pipeline(steps).fit("logs/day_*.parquet", cluster=fb.Local(2), observe=quiet)
    assert here.digest == there.digest
    table = pq.read_table("logs/day_0.parquet").slice(0, 100)
    assert here.transform(table) == there.transform(table)
    few = ft.Pipeline(steps).fit(table, cluster=fb.Local(2), observe=quiet)
    assert few.digest == ft.Pipeline(steps).fit(table).digest
    assert not list(work.glob(".flambeau-fit-*"))
