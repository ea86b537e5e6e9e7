"""The predictor: what it takes, and how it is renewed."""

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.errors import DataError, RunDirectoryError
from flambeau.inference.export import ExportOptions
from flambeau.inference.export_description import read_description
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import History, OneId, add_checkpoint, clicks, write_run

FAST = ExportOptions("torchscript", inside_mb=0)


def load(place: Path) -> fb.Predictor:
    return fb.Predictor.load(place, trust=True)


def export(run: RunDirectory, out: Path, since: Path | None = None) -> None:
    export_run(run, read_settings(run), "latest", out, FAST, since and str(since))


def train_on(run: RunDirectory, step: int) -> None:
    rows = np.arange(30), np.full((30, 4), float(step), np.float32)
    add_checkpoint(run, History(), {"item": rows}, step)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_run(tmp_path, "History")


ROW = {"item": [3, 4], "history": [[1, 2], [5]]}


def score(predictor: fb.Predictor) -> float:
    return float(predictor.predict(ROW)["buy_prediction"][0].as_py())


def test_a_delta_beside_the_export_is_found_and_used(run: RunDirectory, tmp_path: Path) -> None:
    exports = tmp_path / "exports"
    export(run, exports / "day1")
    predictor = load(exports / "day1")
    before = score(predictor)
    assert not predictor.refresh()
    train_on(run, 2)
    export(run, exports / "day2", since=exports / "day1")
    assert score(load(exports / "day1")) == before  # what was asked for
    assert predictor.refresh()
    assert score(predictor) == pytest.approx(score(load(run.path)), abs=1e-6)
    assert score(predictor) != before
    assert not predictor.refresh()
    train_on(run, 3)
    export(run, exports / "day3", since=exports / "day2")
    assert predictor.refresh()
    assert score(load(exports)) == score(predictor)


def test_another_export_in_the_same_place_is_used(run: RunDirectory, tmp_path: Path) -> None:
    export(run, tmp_path / "out")
    predictor = load(tmp_path / "out")
    old = score(predictor)
    train_on(run, 2)
    (tmp_path / "out").rename(tmp_path / "old")
    with pytest.raises(RunDirectoryError, match="neither an export nor a run"):
        predictor.refresh()
    assert score(predictor) == old
    export(run, tmp_path / "out")
    assert predictor.refresh()
    assert score(predictor) != old


def test_a_run_is_renewed_by_its_newer_checkpoint(run: RunDirectory) -> None:
    predictor = load(run.path)
    before = score(predictor)
    assert not predictor.refresh()
    train_on(run, 2)
    assert predictor.refresh()
    assert score(predictor) != before


def test_threads_ask_while_it_is_renewed(run: RunDirectory, tmp_path: Path) -> None:
    export(run, tmp_path / "x/day1")
    predictor = load(tmp_path / "x/day1")
    train_on(run, 2)
    expected = {round(score(p), 5) for p in (predictor, load(run.path))}
    found: list[float] = []

    def ask() -> None:
        found.extend(round(score(predictor), 5) for _ in range(30))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    export(run, tmp_path / "x/day2", since=tmp_path / "x/day1")
    predictor.refresh()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert set(found) <= expected


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run and of an export of it, both to be read only."""
    folder = tmp_path_factory.mktemp("exported")
    export(write_run(folder, "History"), folder / "out")
    return folder


def test_unknown_ids_and_missing_ones_are_answered(exported: Path) -> None:
    predictor = load(exported / "out")
    rows = [{"item": 10**15, "history": [4]}, {"item": 3, "history": None}]
    expected = load(exported / "run").predict(rows)
    found = predictor.predict(rows)
    for name in expected.column_names:
        assert found[name].to_pylist() == pytest.approx(expected[name].to_pylist(), abs=1e-6)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"item": [3]}, "forward\\(\\) needs 'history', and no column has that name"),
        ({"item": ["a"], "history": [[1]]}, "column 'item' holds texts"),
    ],
)
def test_what_does_not_fit_is_said(
    exported: Path, row: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(exported / "out").predict(row)


def test_places_without_an_export_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="neither an export nor a run"):
        load(tmp_path / "nothing")
    with pytest.raises(DataError, match="neither an export nor a folder of exports"):
        load(tmp_path)
    (tmp_path / "binding.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "binding.json").write_text('{"version": 99}')
    with pytest.raises(DataError, match="version 99"):
        load(tmp_path)
    assert clicks().num_rows


def test_ids_beyond_int64_are_those_of_the_training(run: RunDirectory) -> None:
    rows = np.array([5, 2**63 + 5 - 2**64]), np.ones((2, 4), np.float32)
    add_checkpoint(run, History(), {"item": rows}, 2)
    predictor = load(run.path)

    def scores(items: Any) -> list[float]:
        found = predictor.predict({"item": items, "history": [[1, 2], [1, 2], []]})
        return list(found["buy_prediction"].to_pylist())

    known, large, _ = scores([5, 2**63 + 5, 1])
    assert large == known
    assert scores(np.array([5, 2**63 + 5, 1], np.uint64))[:2] == [known, known]
    assert scores([5, 2**63 + 6, 1])[1] != known


def test_integers_that_were_numbers_in_training_are_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Mlp")
    floats = load(run.path)
    rows = {"I1": [1, 2], "I2": [3, 4]}
    expected = floats.predict({name: np.array(values, float) for name, values in rows.items()})
    pq.write_table(pa.table(rows), tmp_path / "clicks.parquet")
    export(run, tmp_path / "out")
    for place in (run.path, tmp_path / "out"):
        assert load(place).predict(rows).equals(expected)
    assert read_description(tmp_path / "out").columns == {"I1": "floats", "I2": "floats"}


@pytest.mark.parametrize("inside_mb", [0, 64])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()])
def test_a_missing_id_reads_as_zeros_in_runs_and_exports(
    tmp_path: Path, inside_mb: int, kind: pa.DataType
) -> None:
    run = write_run(tmp_path, "OneId")
    data = tmp_path / "clicks.parquet"
    pq.write_table(pa.table({"item": clicks()["item"].cast(kind)}), data)
    export_run(
        run, read_settings(run), "latest", tmp_path / "out", ExportOptions(inside_mb=inside_mb)
    )
    rows = [{"item": 5}, {"item": None}, {"item": 6}]
    expected = load(run.path).predict(rows)["prediction"].to_pylist()
    bias = OneId().layer.bias.item()
    assert expected[1] == pytest.approx(bias, abs=1e-6)
    assert expected[0] != expected[1]
    served = load(tmp_path / "out").predict(rows)["prediction"].to_pylist()
    assert served == pytest.approx(expected, abs=1e-6)


def test_several_ids_for_a_model_that_knows_one_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "OneId")
    pq.write_table(pa.table({"item": [1, None, 3]}), tmp_path / "clicks.parquet")
    export_run(run, read_settings(run), "latest", tmp_path / "out", FAST)
    with pytest.raises(DataError, match=r"'item' has several ids in a row.*pooling='sum'"):
        load(tmp_path / "out").predict({"item": [[1, 2], []]})


def test_a_file_in_the_place_of_an_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").touch()
    with pytest.raises(RunDirectoryError, match="is a file; give the folder of the export or run"):
        load(tmp_path / "model.pt2")
