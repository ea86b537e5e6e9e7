"""Pipelines of features on Spark DataFrames, and on files that Spark's executors prepare."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feature_rows import FIT, SPLIT, Clicks, by_id, pipeline, prepared, rows

import flambeau as fb
import flambeau.features as ft
from flambeau.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_CODE = "import pyarrow.compute as pc\ndef twice(x): return {'y': pc.multiply(x['item'], 2)}\n"


@pytest.fixture
def frame(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    """The rows in several partitions, of which some are empty."""
    pq.write_table(rows(), tmp_path / "rows.parquet")
    return spark.read.parquet(str(tmp_path / "rows.parquet")).repartition(6, "click")


def test_features_are_those_of_the_rows_in_memory(frame: "DataFrame") -> None:
    here = pipeline().fit(rows())
    there = pipeline().fit(frame)
    assert there.digest == here.digest
    features = there.transform(frame)
    assert features.schema.simpleString() == (
        "struct<id:bigint,user:bigint,item:bigint,price:float,tags:array<bigint>,time:bigint,"
        "click:bigint,slot:bigint,often:float>"
    )
    assert by_id([features.toArrow()]) == by_id([here.transform(rows())])


def test_a_frame_and_files_are_prepared_alike_on_every_cluster(
    spark: "SparkSession", frame: "DataFrame", tmp_path: Path
) -> None:
    files, cluster = str(tmp_path / "rows.parquet"), fb.Spark(2, session=spark)
    data = {
        "frame": (frame, fb.Local(1)),
        "spark": (files, cluster),
        "one": (files, fb.Local(1)),
    }
    for name, (given, where) in data.items():
        pipeline().fit_transform(given, split=SPLIT, out=tmp_path / name, cluster=where)
    one = prepared(tmp_path / "one")
    assert sum(map(len, (one["train"], one["valid"]))) == 600
    for name in data:
        assert prepared(tmp_path / name) == one, name


def test_a_frame_is_trained_on_and_raw_rows_are_predicted(
    spark: "SparkSession", frame: "DataFrame", tmp_path: Path
) -> None:
    features = pipeline()
    result = fb.fit(
        Clicks,
        train=frame.where("id < 500"),
        valid=frame.where("id >= 500"),
        features=features,
        cluster=fb.Spark(2, session=spark),
        run_dir=tmp_path / "run",
        **FIT,
    )
    assert result.report["rows"]["applied"] == 500
    valid = rows().slice(500)
    assert features.digest == pipeline().fit(rows().slice(0, 500)).digest
    assert result.evaluate(valid)["auc"] == pytest.approx(result.metrics["auc"])
    with pytest.raises(DataError, match="is not read in this process"):
        result.evaluate(frame)
    result.export(tmp_path / "export")
    raw = valid.drop_columns(["click"]).to_pylist()
    expected = result.predict(valid)["probability"].to_pylist()
    found = fb.Predictor.load(tmp_path / "export").predict(raw)
    assert found["probability"].to_pylist() == pytest.approx(expected)


def test_what_is_wrong_with_the_rows_is_said_in_a_line(frame: "DataFrame") -> None:
    wrong = ft.Pipeline([ft.Cast("user", to="int64"), ft.Categorify("user")])
    with pytest.raises(DataError, match=r"^column 'user' has the value 'ü"):
        wrong.fit(frame)
    with pytest.raises(ConfigError, match="is not fitted"):
        pipeline().transform(frame)
    with pytest.raises(DataError, match="there is no column 'user'"):
        pipeline().fit(rows()).transform(frame.drop("user"))
    with pytest.raises(DataError, match=r"several columns 'id'; rename"):
        pipeline().fit(frame.select("id", "id"))
    with pytest.raises(DataError, match="no training rows"):
        pipeline().fit(frame.where("id < 0"))


def test_code_that_executors_lack_is_named(
    frame: "DataFrame", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_code.py").write_text(TASK_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    custom = ft.Custom(function="own_code:twice", columns="item", out={"y": "int64"})
    features = ft.Pipeline([custom, ft.Categorify("y")])
    with pytest.raises(DataError, match=r"No module named 'own_code'.*spark\.addArtifacts"):
        features.fit(frame)


@pytest.mark.parametrize("kind", ["connect", "spark 3.5"])
def test_other_sessions_and_versions(
    kind: str,
    run_script: Callable[..., str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    if kind == "connect":
        run_script("spark_features.py", "--remote", tmp_path, connect=True)
    else:
        run_script("spark_features.py", tmp_path, first=(request.getfixturevalue("spark_35"),))
    here = pipeline().fit(rows())
    assert json.loads((tmp_path / "found.json").read_text()) == {"digest": here.digest}
    found = pa.concat_tables([pq.read_table(tmp_path / "features")])
    assert by_id([found]) == by_id([here.transform(rows())])
    assert sum(map(len, list(prepared(tmp_path / "out").values())[:2])) == 600
