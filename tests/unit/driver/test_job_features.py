"""The pipeline of a job: where it comes from, and when it is fitted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flambeau.features as ft
from flambeau.checkpoint import RunDirectory
from flambeau.driver import job_features
from flambeau.errors import DataError
from flambeau.features.pipeline import Pipeline

STEPS = [ft.Categorify("user")]
QUIET = {"progress": "none"}


@pytest.fixture
def files(tmp_path: Path) -> str:
    for day in range(2):
        users = pa.array([f"u{n % 7}" for n in range(100 + day)])
        pq.write_table(pa.table({"user": users}), tmp_path / f"day_{day}.parquet")
    return str(tmp_path / "day_*.parquet")


def run_of(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.code.mkdir(parents=True, exist_ok=True)
    return run


def fitted(tmp_path: Path, files: str) -> Pipeline:
    """Do what a job does: fit its pipeline, and write it to where the run keeps it."""
    run = run_of(tmp_path)
    found = job_features.fitted(ft.Pipeline(STEPS), files, run.path, None, QUIET)
    assert found is not None
    job_features.write(found, run.code)
    return found


def test_it_is_fitted_in_the_run_and_nothing_is_left_there(tmp_path: Path, files: str) -> None:
    found = fitted(tmp_path, files)
    assert found.digest == ft.Pipeline(STEPS).fit(files).digest
    assert not list((tmp_path / "run").glob(".flambeau-fit*"))
    assert found.transform({"user": ["u0", "u9"]})["user"].to_pylist() == [1, 0]


def test_a_run_that_is_resumed_takes_the_pipeline_that_it_holds(
    tmp_path: Path, files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fitted(tmp_path, files)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(job_features, "fit_files", fail)
    assert fitted(tmp_path, files).digest == first.digest
    pq.write_table(pa.table({"user": ["other"]}), tmp_path / "day_1.parquet")
    with pytest.raises(AssertionError, match="fitted again"):
        fitted(tmp_path, files)


def test_features_may_be_a_file_of_features(tmp_path: Path, files: str) -> None:
    path = tmp_path / "features.yaml"
    path.write_text("operations: [{categorify: user}]")
    found = job_features.fitted(str(path), files, run_of(tmp_path).path, None, QUIET)
    assert found is not None
    assert found.operations == tuple(STEPS)
    assert found.is_fitted


def test_files_without_rows_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": pa.array([], pa.string())}), tmp_path / "none.parquet")
    with pytest.raises(DataError, match="have no rows"):
        fitted(tmp_path, str(tmp_path / "none.parquet"))
