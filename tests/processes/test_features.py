"""Features by several processes, in training, and for predictions from raw columns."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn
from toy import QUIET

import flambeau as fb
import flambeau.features as ft
from flambeau.errors import ConfigError, DataError
from flambeau.models import DeepFM

ROWS = 4000
MODEL = {"fields": 2, "dense": 0, "hidden": [8]}
JOB = {"inputs": {"ids": ["user", "item"]}, "label": "label", "loss": "bce"}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw logs: users are texts, items are large numbers, some are missing."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("logs")
    user, item = rng.integers(0, 50, ROWS), rng.integers(0, 80, ROWS)
    label = ((user % 7 + item % 5 + rng.normal(size=ROWS)) > 5).astype(float)
    table = pa.table(
        {
            "user": [None if x == 0 else f"u{x}" for x in user],
            "item": item * 1_000_000_007,
            "time": np.arange(ROWS),
            "label": label,
        }
    )
    for day in range(4):
        part = table.slice(day * ROWS // 4, ROWS // 4)
        pq.write_table(part, folder / f"day_{day}.parquet", row_group_size=250)
    return folder


def pipeline() -> ft.Pipeline:
    return ft.Pipeline([ft.Categorify(["user", "item"], min_count=2)])


def contents(folder: Path) -> dict[str, bytes]:
    # What a preparation took differs from time to time.
    paths = (p for p in folder.rglob("*") if p.is_file() and p.name != "preparation.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_any_number_of_processes_prepares_the_same_files(logs: Path, tmp_path: Path) -> None:
    split = ft.by_time("time", valid=0.1, test=0.1)
    for workers in (1, 3):
        parts = pipeline().fit_transform(
            f"{logs}/*.parquet", split=split, out=tmp_path / str(workers), cluster=fb.Local(workers)
        )
        assert parts.rows == {"train": 3200, "valid": 400, "test": 400}
    assert contents(tmp_path / "1") == contents(tmp_path / "3")
    assert "statistics.json" in contents(tmp_path / "1")


def test_raw_files_prepared_files_and_served_rows_have_the_same_features(
    logs: Path, tmp_path: Path
) -> None:
    files = f"{logs}/*.parquet"
    raw = fb.fit(
        DeepFM(**MODEL),
        files,
        files,
        features=pipeline(),
        keys=["user"],
        metrics=["auc"],
        epochs=3,
        cluster=fb.Local(2),
        strategy=fb.Hybrid(),
        observe=QUIET,
        run_dir=tmp_path / "raw",
        **JOB,
    )
    assert raw.metrics["auc"] > 0.9
    parts = pipeline().fit_transform(files, out=tmp_path / "prepared")
    again = raw.evaluate(files)
    assert again["auc"] == pytest.approx(raw.metrics["auc"], abs=1e-4)
    assert raw.evaluate(parts.train)["auc"] == pytest.approx(again["auc"], abs=1e-12)

    rows = pq.read_table(files.replace("*", "day_0")).slice(0, 20).drop(["label", "time"])
    expected = raw.predict(rows)
    assert expected["user"].to_pylist() == rows["user"].to_pylist()  # keys are as in the data
    raw.export(tmp_path / "export")
    served = fb.Predictor.load(tmp_path / "export")
    one_by_one = [served.predict([row])["probability"][0].as_py() for row in rows.to_pylist()]
    at_once = served.predict(rows)["probability"].to_pylist()
    assert one_by_one == pytest.approx(at_once, abs=1e-6)
    assert expected["probability"].to_pylist() == pytest.approx(at_once, abs=1e-6)
    with pytest.raises(DataError, match="there is no column 'item'"):
        served.predict({"user": ["u1"]})


def test_a_run_on_prepared_files_takes_raw_rows(logs: Path, tmp_path: Path) -> None:
    parts = pipeline().fit_transform(
        f"{logs}/*.parquet", split=ft.by_ratio(valid=0.2), out=tmp_path / "prepared"
    )
    result = fb.fit(
        DeepFM(**MODEL),
        parts.train,
        parts.valid,
        metrics=["auc"],
        epochs=2,
        observe=QUIET,
        run_dir=tmp_path / "run",
        **JOB,
    )
    row = {"user": "u3", "item": 4 * 1_000_000_007}
    (expected,) = result.predict({name: [value] for name, value in row.items()})["probability"]
    result.export(tmp_path / "export")
    for place in ("run", "export"):
        (found,) = fb.Predictor.load(tmp_path / place).predict([row])["probability"]
        assert found.as_py() == pytest.approx(expected.as_py(), abs=1e-6)


SCRIPT = """
import sys
import flambeau as fb, flambeau.features as ft

parts = ft.Pipeline([ft.Categorify(["user", "item"], min_count=2)]).fit_transform(
    sys.argv[1], split=ft.by_time("time", test=0.2), out=sys.argv[2], cluster=fb.Local(2)
)
print("rows", parts.rows)
"""


def test_a_killed_preparation_resumes_and_leaves_no_process(logs: Path, tmp_path: Path) -> None:
    files, out = f"{logs}/*.parquet", tmp_path / "out"
    command = [sys.executable, "-c", SCRIPT, files, str(out)]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob(".flambeau-work/gather-*.done")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(children, timeout=10)
    assert not (out / "prepared.json").exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "'train': 3200" in done.stdout
    pipeline().fit_transform(
        files, split=ft.by_time("time", test=0.2), out=tmp_path / "whole", cluster=fb.Local(1)
    )
    assert contents(out) == contents(tmp_path / "whole")


def test_labels_joins_and_times_are_made_of_raw_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    user, item = rng.integers(1, 50, ROWS), rng.integers(1, 80, ROWS)
    rating = np.clip(3 + user % 3 - item % 3 + rng.integers(-1, 2, ROWS), 1, 5)
    seconds = 881250949 + np.arange(ROWS) * 60
    lines = zip(user, item, rating, seconds, strict=True)
    Path("u.data").write_text("".join(f"{a}\t{b}\t{c}\t{d}\n" for a, b, c, d in lines))
    people = (f"{n}|{20 + n}|{'MF'[n % 2]}|writer|{n:05}\n" for n in range(1, 50))
    Path("u.user").write_text("".join(people))

    ratings = fb.files("u.data", format="tsv", names=["user", "item", "rating", "time"])
    names = ["user", "age", "sex", "job", "zip"]
    users = fb.files("u.user", format="csv", delimiter="|", names=names)
    columns = ["user", "item", "age", "sex", "job", "hour"]
    steps = ft.Pipeline(
        [
            ft.Threshold("rating", at_least=4, out="label"),
            ft.Join(users, on="user"),
            ft.DateParts("time", ["hour"]),
            ft.Bucketize("age", quantiles=8),
            ft.Categorify(columns, min_count=2),
        ]
    )
    parts = steps.fit_transform(
        ratings, split=ft.by_time("time", valid=0.1, test=0.1), out="prepared"
    )
    assert parts.rows == {"train": 3200, "valid": 400, "test": 400}
    run = fb.fit(
        DeepFM(fields=6, dense=0),
        parts.train,
        parts.valid,
        inputs={"ids": columns},
        label="label",
        loss="bce",
        observe=QUIET,
        run_dir="run",
    )
    run.export("export")
    raw = {"user": 19, "item": 24, "time": 881250949}  # no rating, and the user's age is joined
    (found,) = fb.Predictor.load("export").predict([raw])["probability"]
    (expected,) = run.predict({name: [value] for name, value in raw.items()})["probability"]
    assert found.as_py() == pytest.approx(expected.as_py(), abs=1e-6)


def test_a_training_row_does_not_see_its_own_label(logs: Path, tmp_path: Path) -> None:
    encoded = ft.Pipeline([ft.TargetEncode("user", target="label", out="mean")])
    with pytest.raises(ConfigError, match=r"target_encode: a training row must not see its own"):
        fb.fit(
            nn.Linear(1, 1),
            f"{logs}/*.parquet",
            features=encoded,
            inputs=["mean"],
            label="label",
            loss="bce",
            run_dir=tmp_path / "run",
        )
