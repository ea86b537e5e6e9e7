"""Whatever uses a run's tables notices when they are damaged."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.driver.parts.evaluate import evaluate_run
from flambeau.errors import CheckpointError
from flambeau.inference.export import ExportOptions
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import write_run

ROW = {"item": [3, 4], "history": [[1, 2], [5]]}


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 16
    path.write_bytes(content)


def export(run: RunDirectory, out: Path) -> None:
    export_run(run, read_settings(run), "latest", out, ExportOptions(inside_mb=0))


def evaluate(run: RunDirectory, out: Path) -> None:
    evaluate_run(run, read_settings(run), "latest", str(run.path.parent / "clicks.parquet"), ())


@pytest.mark.parametrize(
    "use", [export, evaluate, lambda run, _: fb.Predictor.load(run.path).predict(ROW)]
)
def test_a_damaged_table_of_a_run(
    tmp_path: Path, use: Callable[[RunDirectory, Path], object]
) -> None:
    run = write_run(tmp_path, "History")
    (file,) = run.path.glob("checkpoints/*/table-*")
    flip_a_bit(file)
    with pytest.raises(CheckpointError, match=rf"{file.name} is corrupt: bytes \d+ to"):
        use(run, tmp_path / "out")


def test_a_checkpoint_that_is_there_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    (file,) = run.path.glob("checkpoints/*/table-*")
    other = run.checkpoints / "step-00000142"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    flip_a_bit(file)
    with pytest.raises(CheckpointError, match=r"use another checkpoint: RUN@step-142$"):
        fb.Predictor.load(f"{run.path}@{file.parent.name}").predict(ROW)


def test_a_damaged_table_of_an_export(tmp_path: Path) -> None:
    run = write_run(tmp_path, "History")
    export(run, tmp_path / "out")
    flip_a_bit(next((tmp_path / "out/tables").iterdir()))
    with pytest.raises(CheckpointError, match=r"is corrupt: bytes \d+ to .*export the run again"):
        fb.Predictor.load(tmp_path / "out").predict(ROW)
