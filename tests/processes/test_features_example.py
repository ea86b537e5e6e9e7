"""The example of a pipeline of features, word for word: ratings, a table to join, raw rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import flambeau as fb

SCRIPT = """
import flambeau as fb, flambeau.features as ft
from flambeau.models import DeepFM

ratings = fb.files("ml-100k/u.data", format="tsv", names=["user", "item", "rating", "time"])
users = fb.files("ml-100k/u.user", format="csv", delimiter="|", names=["user", "age", "sex", "job", "zip"])
columns = ["user", "item", "age", "sex", "job", "hour"]
pipeline = ft.Pipeline([
    ft.Threshold("rating", at_least=4, out="label"), ft.Join(users, on="user"), ft.DateParts("time", ["hour"]),
    ft.Bucketize("age", quantiles=8), ft.Categorify(columns, min_count=2),
])
parts = pipeline.fit_transform(ratings, split=ft.by_time("time", valid=.1, test=.1), out="prepared")
run = fb.fit(DeepFM(fields=6, dense=0), parts.train, parts.valid, inputs={"ids": columns}, label="label", loss="bce")
run.export("export")
found = fb.Predictor.load("export").predict([{"user": 196, "item": 242, "time": 881250949}])   # raw, no rating; joins inside
"""  # noqa: E501


@pytest.fixture
def ratings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ratings in the form of MovieLens' 100,000, in the working directory."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    users, items = rng.integers(190, 230, 600), rng.integers(230, 290, 600)
    times = 881_250_949 + np.sort(rng.integers(0, 10**6, 600))
    lines = zip(users, items, rng.integers(1, 6, 600), times, strict=True)
    (folder / "u.data").write_text("".join("\t".join(map(str, each)) + "\n" for each in lines))
    jobs = ("writer", "doctor", "other")
    (folder / "u.user").write_text(
        "".join(f"{u}|{u % 50 + 15}|{'MF'[u % 2]}|{jobs[u % 3]}|{u:05}\n" for u in range(190, 230))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_of_a_pipeline(ratings: Path) -> None:
    names: dict[str, object] = {}
    exec(SCRIPT, names)
    found, run = names["found"], names["run"]
    assert isinstance(found, pa.Table)
    assert isinstance(run, fb.Result)
    rows = {"user": [196], "item": [242], "time": [881_250_949]}
    assert found["probability"].to_pylist() == pytest.approx(
        run.predict(rows)["probability"].to_pylist(), abs=1e-6
    )
    assert 0 < found["probability"][0].as_py() < 1
