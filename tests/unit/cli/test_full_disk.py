"""Commands whose files do not fit: one line, no traceback, and nothing left behind."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flambeau.cli.app import app

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import write_run


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes, as if the disk were full."""
    monkey = pytest.MonkeyPatch()
    monkey.setattr(sys, "dont_write_bytecode", True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        monkey.undo()


def refused(*arguments: str, out: Path, size: int = 100) -> str:
    """The last line of a command whose files do not fit."""
    # All modules are imported and kernels compiled first: their caches must not be cut off.
    warm = CliRunner().invoke(app, [*arguments, "--out", f"{out.parent}-warm/{out.name}"])
    assert warm.exit_code == 0, warm.output
    with files_up_to(size):
        result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output.splitlines()[-1]


@pytest.mark.parametrize("form", ["tsv", "parquet"])
def test_a_click_log_that_does_not_fit_is_removed(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out" / "log"
    line = refused(
        *("generate", "clicks", "--rows", "2000", "--ids", "5000", "--format", form), out=out
    )
    assert line.startswith(f"error: {out}/day_0.{form}: the file is larger than a limit allows")
    assert not out.exists()


@pytest.mark.parametrize("out", ["scores.parquet", "scores.csv", "scores"])
def test_predictions_that_do_not_fit_leave_no_parts(tmp_path: Path, out: str) -> None:
    run = write_run(tmp_path, "Mlp")
    place = tmp_path / "out" / out
    data = str(tmp_path / "clicks.parquet")
    line = refused("predict", str(run.path), data, "--workers", "1", out=place, size=600)
    assert line.startswith(f"error: {place}")
    assert "the file is larger than a limit allows" in line
    assert {path.name for path in (tmp_path / "out").rglob("*")} <= {"scores", "_manifest.json"}


@pytest.mark.parametrize("form", ["pt2", "torchscript"])
def test_an_export_that_does_not_fit_is_removed(tmp_path: Path, form: str) -> None:
    run = write_run(tmp_path, "Mlp")
    out = tmp_path / "out" / "export"
    line = refused("export", str(run.path), "--format", form, out=out)
    assert "the file is larger than a limit allows" in line
    assert not any((tmp_path / "out").iterdir())


def test_features_that_do_not_fit_say_how_to_resume(tmp_path: Path) -> None:
    rows = "".join(f"{user * 7919},{user}\n" for user in range(2000))
    (tmp_path / "log.csv").write_text(f"user,time\n{rows}")
    features = tmp_path / "features.yaml"
    features.write_text("operations: [{categorify: user}]\ncluster: local")
    data = f"data={tmp_path}/log.csv"
    place = tmp_path / "out" / "features"
    line = refused("prepare", str(features), data, out=place, size=5000)
    assert "the file is larger than a limit allows" in line
    assert line.endswith("What is complete is kept: run the same command to resume")
    assert (
        CliRunner().invoke(app, ["prepare", str(features), data, "--out", str(place)]).exit_code
        == 0
    )
