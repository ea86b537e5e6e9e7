"""Pipelines of features on Ray Datasets, and on files that the nodes of a Ray prepare."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import ray.data
from feature_rows import FIT, SPLIT, Clicks, by_id, pipeline, prepared, rows
from ray_nodes import Nodes

import flambeau as fb
import flambeau.features as ft
from flambeau.data.generated import generate_clicks
from flambeau.errors import ConfigError, DataError
from flambeau.models import DLRM

pytestmark = pytest.mark.usefixtures("joined")


def dataset(table: pa.Table | None = None) -> Any:
    """Return rows in blocks of different sizes."""
    table = rows() if table is None else table
    cuts = [0, len(table) // 5, len(table) // 2, len(table)]
    blocks = [table.slice(cut, end - cut) for cut, end in itertools.pairwise(cuts)]
    return ray.data.from_arrow(blocks)


def test_features_are_those_of_the_rows_in_memory() -> None:
    here = pipeline().fit(rows())
    there = pipeline().fit(dataset())
    assert there.digest == here.digest
    features = there.transform(dataset())
    assert features.schema(fetch_if_missing=False) is None  # nothing was computed
    found = ray.get(features.to_arrow_refs())
    expected = here.transform(rows())
    assert {table.schema for table in found} == {expected.schema}
    assert by_id(found) == by_id([expected])


def test_blocks_of_pandas_and_tensors_are_columns_of_arrow() -> None:
    items = [{"user": f"u{number % 3}", "image": np.full((2, 2), number)} for number in range(9)]
    images = ray.data.from_items(items, override_num_blocks=2).map_batches(
        lambda batch: batch, batch_format="pandas"
    )
    features = ft.Pipeline([ft.Categorify("user")]).fit(images)
    assert features.schema_ is not None
    assert features.schema_.field("image").type == pa.list_(pa.list_(pa.int64(), 2), 2)
    assert sorted(row["user"] for row in features.transform(images).take_all()) == sorted(
        [1, 2, 3] * 3
    )


def test_a_dataset_and_files_are_prepared_alike(two_rays: Nodes, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    files = str(tmp_path / "rows.parquet")
    data = {
        "dataset": (dataset(), fb.Local(1)),
        "ray": (files, fb.Ray(2, placement="spread")),
        "local": (files, fb.Local(1)),
    }
    for name, (given, where) in data.items():
        pipeline().fit_transform(given, split=SPLIT, out=tmp_path / name, cluster=where)
    local = prepared(tmp_path / "local")
    assert sum(map(len, (local["train"], local["valid"]))) == 600
    for name in data:
        assert prepared(tmp_path / name) == local, name


CRITEO = """
parts = ft.criteo(min_count=10).fit_transform(fb.files("day_*", format="criteo"),
    split=ft.by_file(train="day_[0-3]", test="day_23"), out="prepared", cluster=fb.Ray(4), memory="4G")
run = fb.fit(DLRM(), "day_[0-3]", "day_23", features=ft.criteo(), inputs={"ids": "C1:C26", "dense": "I1:I13"}, label="label")
"""  # noqa: E501


def test_the_example_of_criteo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, on two nodes instead of four."""
    monkeypatch.chdir(tmp_path)
    generate_clicks(tmp_path / "clicks", rows=700, ids=50)
    for day, name in enumerate((0, 1, 2, 3, 23)):
        (tmp_path / "clicks" / f"day_{day}.tsv").rename(tmp_path / f"day_{name}")
    names: dict[str, Any] = {"fb": fb, "ft": ft, "DLRM": DLRM}
    exec(CRITEO.replace("fb.Ray(4)", "fb.Ray(2)"), names)
    assert names["parts"].rows == {"train": 400, "valid": 0, "test": 100}
    assert names["run"].metrics["loss"] < 1


def test_a_dataset_is_trained_on_and_raw_rows_are_predicted(tmp_path: Path) -> None:
    features, valid = pipeline(), rows().slice(500)
    result = fb.fit(
        Clicks,
        train=dataset(rows().slice(0, 500)),
        valid=dataset(valid),
        features=features,
        cluster=fb.Ray(2),
        run_dir=tmp_path / "run",
        **FIT,
    )
    assert result.report["rows"]["applied"] == 500
    assert features.digest == pipeline().fit(rows().slice(0, 500)).digest
    assert result.evaluate(valid)["auc"] == pytest.approx(result.metrics["auc"])
    result.export(tmp_path / "export")
    predictor = fb.Predictor.load(tmp_path / "export")
    raw = valid.drop_columns(["click"]).to_pylist()
    expected = result.predict(valid)["probability"].to_pylist()
    assert predictor.predict(raw)["probability"].to_pylist() == pytest.approx(expected)


def test_what_is_wrong_with_the_rows_is_said_in_a_line() -> None:
    wrong = ft.Pipeline([ft.Cast("user", to="int64"), ft.Categorify("user")])
    with pytest.raises(DataError, match=r"^column 'user' has the value 'ü"):
        wrong.fit(dataset())
    with pytest.raises(ConfigError, match="is not fitted"):
        pipeline().transform(dataset())
    with pytest.raises(DataError, match="there is no column 'user'"):
        pipeline().fit(rows()).transform(dataset(rows().drop_columns(["user"])))
