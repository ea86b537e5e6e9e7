"""`flambeau tables` on checkpoints made by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from flambeau.checkpoint import Manifest, RunDirectory
from flambeau.checkpoint.manifest import TableEntry
from flambeau.checkpoint.references import checkpoint_path
from flambeau.cli.app import app
from flambeau.config.optimizer import optim
from flambeau.config.tables import Initializer, TableSpec
from flambeau.tables.saved.snapshot import Chunk
from flambeau.tables.saved.table_files import TableFileWriter, table_file_name

CONSTANT = Initializer(kind="constant", value=0.25)
SPECS = {
    "item": TableSpec("item", 2, optimizer=optim("adagrad", lr=0.1), initializer=CONSTANT),
    "user": TableSpec("user", 2, dtype="fp64"),
}
Tables = dict[str, dict[int, float]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory("run")
    run.prepare({"epochs": 1}, "auto")
    checkpoint(run, 1, {"item": {1: 1.0, -5: 2.5}})
    checkpoint(run, 2, {"item": {1: 3.0, 7: 7.0}}, base=1)


def checkpoint(run: RunDirectory, step: int, tables: Tables, base: int | None = None) -> None:
    directory = checkpoint_path(run, step)
    directory.mkdir()
    entries = {name: write(directory, SPECS[name], rows, base) for name, rows in tables.items()}
    fields: dict[str, Any] = {"step": step, "epoch": 0, "workers": 1, "time": 0.0, "state": None}
    Manifest(**fields, metrics={}, files={}, tables=entries).write(directory)


def write(directory: Path, spec: TableSpec, rows: dict[int, float], base: int | None) -> TableEntry:
    name = table_file_name(spec.name, 0)
    dtype = np.float64 if spec.dtype == "fp64" else np.float32
    values = np.tile(np.array(list(rows.values()), dtype)[:, None], (1, spec.dim))
    writer = TableFileWriter(directory / name, spec, len(rows), 0)
    writer.append(Chunk(np.array(list(rows), np.int64), values, values[:, :0], None))
    writer.finish()
    older = [] if base is None else [[f"../step-{base:08d}/{name}"]]
    return TableEntry(spec=spec.model_dump(mode="json"), layers=[[name], *older])


def flambeau(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tables", *arguments])


def two_tables() -> None:
    checkpoint(RunDirectory("run"), 3, {"item": {1: 1.0}, "user": {4: 0.1}})


def test_it_lists_the_tables_of_the_latest_checkpoint() -> None:
    size = sum(path.stat().st_size for path in Path("run").rglob("table-item-0.safetensors"))
    assert flambeau("run").stdout.splitlines() == [
        "run step-00000002",
        "name  dim  dtype  rows  bytes  optimizer  shards",
        f"item  2    fp32   3     {size:<5}  adagrad    1",
    ]


def test_it_lists_the_one_table_that_is_named() -> None:
    two_tables()
    lines = flambeau("run@step-3", "--table", "user").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["user"]


def test_it_draws_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    shown = flambeau("run").stdout
    assert "adagrad" in shown
    assert "name  dim" not in shown


def test_it_shows_rows_by_id() -> None:
    shown = flambeau("run", "--id", "1", "--id", "-5", "--id", "42").stdout
    assert shown.splitlines() == [
        "1: 3 3",
        "-5: 2.5 2.5",
        "42: no row; the default is used: 0.25 0.25",
    ]


def test_an_earlier_checkpoint_has_its_own_rows() -> None:
    assert flambeau("run@step-1", "--id", "1").stdout == "1: 1 1\n"


def test_it_exports_ids_and_vectors() -> None:
    result = flambeau("run", "--export", "new/vectors.parquet")
    assert result.stdout == "3 rows written to new/vectors.parquet\n"
    table = pq.read_table("new/vectors.parquet")
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[2]"
    rows = dict(zip(*table.to_pydict().values(), strict=True))
    assert rows == {1: [3.0, 3.0], 7: [7.0, 7.0], -5: [2.5, 2.5]}
    assert [path.name for path in Path("new").iterdir()] == ["vectors.parquet"]


def test_numbers_of_double_precision_are_exported_as_such() -> None:
    two_tables()
    flambeau("run", "--table", "user", "--export", "vectors.parquet")
    assert pq.read_table("vectors.parquet").to_pydict() == {"id": [4], "vector": [[0.1, 0.1]]}


def test_a_table_without_rows_is_exported_without_rows() -> None:
    checkpoint(RunDirectory("run"), 3, {"item": {}})
    assert flambeau("run", "--export", "vectors.parquet").stdout.startswith("0 rows")
    assert pq.read_table("vectors.parquet").column_names == ["id", "vector"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no"], "no is not a run directory: it has no job.yaml"),
        (["run@step-9"], "has no checkpoint of step 9"),
        (["run@step-2", "--table", "itme"], "has no table 'itme'; did you mean 'item'?"),
        (
            ["run@step-2", "--id", "four"],
            "--id four: an id is a whole number from -2^63 to 2^63 - 1",
        ),
        (["run@step-2", "--id", str(2**63)], "an id is a whole number"),
        (["run@step-2", "--export", "vectors.csv"], "use a name that ends in .parquet"),
        (["run@step-2", "--export", "there.parquet"], "it exists already"),
        (["run@step-3", "--id", "4"], "say which table with --table: item, user"),
        (["run@step-4"], "has no tables"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    two_tables()
    checkpoint(RunDirectory("run"), 4, {})
    Path("there.parquet").write_text("precious")
    result = flambeau(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert Path("there.parquet").read_text() == "precious"
