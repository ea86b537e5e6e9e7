"""Files that describe the features of raw data: what they may say, and what is said when wrong."""

from pathlib import Path

import pyarrow as pa
import pytest

import flambeau.features as ft
from flambeau.config import FileData, Local
from flambeau.errors import ConfigError, DataError
from flambeau.features.features_file import FeaturesFile, is_features_file, load_features_file
from flambeau.features.splits import ByFile, ByHash, ByRatio, ByTime

GOOD = """
data: {path: [a.tsv, b.tsv], format: tsv, options: {names: [user, item, time]}}
split: {by_time: {column: time, valid: 0.1}}
operations:
  - log: time
  - categorify: {columns: [user, item], min_count: 2}
  - join: {table: {path: users.csv, format: csv}, on: user}
out: prepared
memory: 4G
cluster: {local: {workers: 3}}
"""


def load(tmp_path: Path, text: str, *overrides: str) -> FeaturesFile:
    path = tmp_path / "features.yaml"
    path.write_text(text)
    return load_features_file(path, overrides)


def test_everything_that_a_file_may_say(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    options = {"names": ["user", "item", "time"]}
    assert found.data == FileData(path=("a.tsv", "b.tsv"), format="tsv", options=options)
    assert found.split == ByTime(column="time", valid=0.1)
    log, categorify, join = found.pipeline.operations
    assert log == ft.Log("time")
    assert categorify == ft.Categorify(["user", "item"], min_count=2)
    assert join == ft.Join(FileData(path="users.csv", format="csv"), on="user")
    assert (found.out, found.memory) == ("prepared", "4G")
    assert found.cluster is not None
    assert found.cluster.chosen == Local(3)
    assert not found.pipeline.is_fitted
    assert found.report is False
    assert load(tmp_path, GOOD, "report=page.html").report == "page.html"


def test_every_operation_has_a_name_in_files(tmp_path: Path) -> None:
    operation = "{}: {{columns: [a]}}"
    for kind in ("cast", "clip", "hash", "normalize", "one_hot", "split_text", "fill_missing"):
        extra = {"cast": ", to: float32", "clip": ", low: 0", "fill_missing": ", value: 1"}
        text = operation.format(kind).replace("]}", f"]{extra.get(kind, '')}}}")
        found = load(tmp_path, f"operations: [{text}]")
        assert found.pipeline.operations[0].kind == kind


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("by_ratio", ByRatio()),
        ("{by_ratio: {valid: 0.2, shuffle: false}}", ByRatio(valid=0.2, shuffle=False)),
        ("{by_hash: {column: user, test: 0.5}}", ByHash(column="user", test=0.5)),
        ('{by_file: {train: "day_[0-3]"}}', ByFile(train="day_[0-3]")),
    ],
)
def test_splits(text: str, split: object, tmp_path: Path) -> None:
    assert load(tmp_path, f"operations: [log: a]\nsplit: {text}").split == split


def test_the_pipeline_of_criteo_by_its_name(tmp_path: Path) -> None:
    plain = load(tmp_path, "pipeline: criteo")
    assert plain.pipeline.operations == ft.criteo().operations
    assert plain.pipeline.format == "criteo"
    given = load(tmp_path, "pipeline: {criteo: {min_count: 10}}").pipeline
    assert given.operations == ft.criteo(min_count=10).operations
    changed = load(tmp_path, "pipeline: criteo", "pipeline.criteo.min_count=10").pipeline
    assert changed.operations == given.operations


def test_keys_of_the_command_line_change_those_of_the_file(tmp_path: Path) -> None:
    changed = load(tmp_path, GOOD, "data.path=c.tsv", "memory=2G", "~split", "out=other")
    assert changed.data is not None
    assert (changed.data.path, changed.data.format) == ("c.tsv", "tsv")
    assert (changed.memory, changed.split, changed.out) == ("2G", None, "other")
    assert load(tmp_path, "data: a.csv\npipeline: criteo", "data.format=criteo").data == FileData(
        path="a.csv", format="criteo"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operations: [logg: a]", "operation 1: there is no 'logg'; did you mean 'log'?"),
        (
            "operations: [{log: a, categorify: b}]",
            "operation 1: write one name and its arguments",
        ),
        (
            "operations: [{log: a}, {categorify: {columns: b, min_cont: 2}}]",
            r"operation 2 \(categorify\): unknown key 'min_cont'; did you mean 'min_count'?",
        ),
        ("operations: [log]", r"operation 1 \(log\): 'columns' is missing"),
        (
            "operations: [{clip: {columns: a, low: 5, high: 1}}]",
            r"operation 1 \(clip\): low=5 is above high=1",
        ),
        ("operations: [{join: {table: {pth: x}, on: a}}]", r"\(join\): table: write a path, or"),
        ("operations: [cross: [a, b]]", "'out' is missing"),
        ("operations: [threshold: 3]", r"\(threshold\): write its arguments as 'name: value'"),
        ("operations: 3", "operations=3: Input should be a valid list"),
        ("pipeline: crite", "pipeline: there is no 'crite'; did you mean 'criteo'?"),
        ("pipeline: {criteo: {mincount: 3}}", "criteo has no argument 'mincount'; did you mean"),
        ("operations: [log: a]\nsplit: by_tim", "split: there is no 'by_tim'; did you mean"),
        (
            "operations: [log: a]\nsplit: {by_time: {colum: t}}",
            r"split \(by_time\): unknown key 'colum'; did you mean 'column'?",
        ),
        ("operations: [log: a]\nmemry: 3", "unknown key 'memry'; did you mean 'memory'?"),
        ("operations: [log: a]\ndata: {pth: x}", "unknown key 'data.pth'; did you mean 'path'?"),
        ("operations: [log: a]\ndata: nets:rows", "features are made of files"),
        ("operations: [log: a]\ncluster: lokal", "unknown key 'cluster.lokal'; did you mean"),
        ("operations: [log: a]\npipeline: criteo", "one of the two"),
        ("data: a.csv", "write 'operations', or 'pipeline'"),
        ("", "is empty; it needs at least 'operations'"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        load(tmp_path, text)
    assert all(line.startswith(str(tmp_path)) for line in str(raised.value).splitlines())


def test_all_mistakes_are_listed_at_once(tmp_path: Path) -> None:
    text = "operations: [{logg: a}, {log: {colums: a}}]\nmemry: 3\nsplit: by_tim"
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    assert len(str(raised.value).splitlines()) == 5  # 'columns' is missing, too


def test_a_mistake_of_the_command_line_is_said_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="command line: unknown key 'memry'"):
        load(tmp_path, "operations: [log: a]", "memry=3")


def test_columns_that_the_data_do_not_have_name_the_operation(tmp_path: Path) -> None:
    schema = pa.schema({"user": pa.string(), "time": pa.int64(), "price": pa.float64()})
    good = load(tmp_path, "operations: [{log: {columns: price, out: p}}, {log: p}]")
    good.check_columns(schema)
    wrong = load(tmp_path, "operations: [{log: price}, {categorify: usr}]")
    message = r"operation 2 \(categorify\): there is no column 'usr'; did you mean 'user'?"
    with pytest.raises(DataError, match=message):
        wrong.check_columns(schema)
    with pytest.raises(DataError, match=r"operation 1 \(log\): column 'user' holds string"):
        load(tmp_path, "operations: [log: user]").check_columns(schema)
    bucketize = "operations: [bucketize: {columns: user, quantiles: 4}]"
    with pytest.raises(DataError, match=r"operation 1 \(bucketize\): column 'user' holds string"):
        load(tmp_path, bucketize).check_columns(schema)
    split = load(tmp_path, "operations: [log: price]\nsplit: {by_time: {column: tme}}")
    with pytest.raises(DataError, match=r"split: there is no column 'tme'; did you mean 'time'?"):
        split.check_columns(schema)


def test_such_files_are_known_by_their_names() -> None:
    assert is_features_file("features.yaml")
    assert is_features_file(Path("a/b.yml"))
    assert not is_features_file("prepared")
    assert not is_features_file(ft.criteo())
