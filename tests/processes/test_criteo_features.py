"""Criteo's raw logs: trained on, evaluated and predicted with `ft.criteo()`, and served by row."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from toy import QUIET

import flambeau as fb
import flambeau.features as ft
from flambeau.data.sources.text.criteo import open_criteo
from flambeau.errors import DataError
from flambeau.models import DLRM

MODEL = {"embedding_dim": 4, "bottom": [8], "top": [8]}
JOB: dict[str, Any] = {
    "inputs": {"ids": "C1:C26", "dense": "I1:I13"},
    "label": "label",
    "loss": "bce",
    "batch_size": 64,
    "metrics": ["auc"],
}
NAMES = [*(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]


def cells_of(rng: np.random.Generator) -> list[str]:
    special = ["", "-1", "16777217", "9007199254740993", "9223372036854775807"]
    numbers = [
        str(rng.integers(0, 60)) if rng.random() < 0.8 else str(rng.choice(special))
        for _ in range(13)
    ]
    texts = [f"{rng.integers(0, 9):08x}" if rng.random() < 0.9 else "" for _ in range(26)]
    return [*numbers, *texts]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days of logs, and a file without labels."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("logs")
    for day in (0, 1, 2, 3, 23):
        rows = [cells_of(rng) for _ in range(200)]
        lines = ["\t".join([str(int(row[13] < "00000004")), *row]) for row in rows]
        (folder / f"day_{day}").write_text("\n".join(lines) + "\n")
    labelled = (folder / "day_23").read_text().splitlines()
    bare = [line.split("\t", 1)[1] for line in labelled]
    (folder / "test.txt").write_text("\n".join(bare) + "\n")
    return folder


def raw_rows(path: Path) -> list[dict[str, Any]]:
    """Return rows as an application has them."""
    found = []
    for line in path.read_text().splitlines():
        values: list[Any] = line.split("\t")
        numbers = [int(value) if value else None for value in values[:13]]
        found.append(dict(zip(NAMES, [*numbers, *values[13:]], strict=True)))
    return found


@pytest.fixture(scope="module", params=["hashed", "vocabulary"])
def trained(
    request: pytest.FixtureRequest, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> fb.Result:
    pipeline = ft.criteo(min_count=3) if request.param == "vocabulary" else None
    return fb.fit(
        DLRM(**MODEL),
        str(logs / "day_[0-3]"),
        str(logs / "day_23"),
        features=pipeline or ft.criteo(vocabulary=False),
        cluster=fb.Local(2),
        run_dir=tmp_path_factory.mktemp("run") / "run",
        **JOB,
        observe=QUIET,
        strategy=fb.Hybrid(),
    )


def predicted(run: fb.Result, data: Any, out: Path) -> list[float]:
    run.predict(data, out)
    scores: list[float] = pq.read_table(out)["probability"].to_pylist()
    return scores


def test_raw_logs_are_evaluated_and_predicted(
    trained: fb.Result, logs: Path, tmp_path: Path
) -> None:
    again = trained.evaluate(str(logs / "day_23"))
    assert again["auc"] == pytest.approx(trained.metrics["auc"], abs=1e-6)
    labelled = predicted(trained, str(logs / "day_23"), tmp_path / "labelled")
    bare = fb.files(str(logs / "test.txt"), format="criteo", labels=[])
    assert predicted(trained, bare, tmp_path / "bare") == labelled
    packed = tmp_path / "day_23.gz"
    packed.write_bytes(gzip.compress((logs / "day_23").read_bytes()))
    assert predicted(trained, str(packed), tmp_path / "packed") == labelled


def test_raw_rows_are_served_as_a_batch_is(trained: fb.Result, logs: Path, tmp_path: Path) -> None:
    batch = predicted(trained, str(logs / "day_23"), tmp_path / "scores")
    trained.export(tmp_path / "export")
    predictor = fb.Predictor.load(tmp_path / "export")
    rows = raw_rows(logs / "test.txt")
    whole = predictor.predict(rows)["probability"].to_pylist()
    one_by_one = [predictor.predict([row])["probability"][0].as_py() for row in rows[:40]]
    assert np.allclose(whole, batch, rtol=0, atol=1e-6)
    assert np.allclose(one_by_one, batch[:40], rtol=0, atol=1e-6)


def test_days_are_prepared_and_trained_on(logs: Path, tmp_path: Path) -> None:
    files = fb.files(str(logs / "day_*"), format="criteo")
    split = ft.by_file(train="day_[0-3]", test="day_23")
    pipeline = ft.criteo(min_count=3)
    parts = pipeline.fit_transform(files, split=split, out=tmp_path / "prepared")
    assert parts.rows == {"train": 800, "valid": 0, "test": 200}
    direct = ft.criteo(min_count=3).fit(fb.files(str(logs / "day_[0-3]"), format="criteo"))
    assert direct.digest == pipeline.digest
    prepared = pq.read_table(parts.test)
    assert prepared.schema.field("C1").type == pa.int64()
    assert prepared.schema.field("I1").type == pa.float32()
    run = fb.fit(
        DLRM(**MODEL),
        parts.train,
        parts.test,
        cluster=fb.Local(1),
        run_dir=tmp_path / "run",
        **JOB,
        observe=QUIET,
        strategy=fb.Hybrid(),
    )
    from_raw = predicted(run, str(logs / "day_23"), tmp_path / "raw")
    from_prepared = predicted(run, parts.test, tmp_path / "scores")
    assert sorted(from_raw) == sorted(from_prepared)


def test_a_run_on_logs_without_features_serves_raw_rows(logs: Path, tmp_path: Path) -> None:
    files = fb.files(str(logs / "day_[0-3]"), format="criteo", dense="log")
    run = fb.fit(
        DLRM(**MODEL),
        files,
        fb.files(str(logs / "day_23"), format="criteo"),
        cluster=fb.Local(1),
        run_dir=tmp_path / "run",
        observe=QUIET,
        strategy=fb.Hybrid(),
        **JOB,
    )
    batch = predicted(run, str(logs / "day_23"), tmp_path / "scores")
    predictor = fb.Predictor.load(run.export(tmp_path / "export"))
    rows = raw_rows(logs / "test.txt")
    found = predictor.predict(rows)["probability"].to_pylist()
    assert np.allclose(found, batch, rtol=0, atol=1e-6)
    with pytest.raises(DataError, match="'C1' holds integers, but"):
        predictor.predict([{**rows[0], "C1": 17}])
    reader = open_criteo(str(logs / "day_23"))
    (table,) = reader.read(reader.shards()[0], reader.schema.names)
    with pytest.raises(DataError, match="give the raw data, not what was made of it"):
        run.evaluate(pa.table(table))


def test_labels_of_minus_one_are_mapped_as_without_features(logs: Path, tmp_path: Path) -> None:
    lines = (logs / "day_0").read_text().splitlines()
    changed = ["-1" + line[1:] if line[0] == "0" else line for line in lines]
    (tmp_path / "signed").write_text("\n".join(changed) + "\n")
    found = []
    for name, given in [
        ("with", {"features": ft.criteo(vocabulary=False)}),
        ("without", {}),
    ]:
        data = (
            str(tmp_path / "signed")
            if given
            else fb.files(str(tmp_path / "signed"), format="criteo")
        )
        torch.manual_seed(0)
        run = fb.fit(
            DLRM(**MODEL),
            data,
            cluster=fb.Local(1),
            run_dir=tmp_path / name,
            label_map={-1: 0, 1: 1},
            **{**JOB, "metrics": []},
            **given,
            observe=QUIET,
            strategy=fb.Hybrid(),
        )
        found.append(predicted(run, data, tmp_path / f"{name}-scores"))
    assert found[0] == found[1]
