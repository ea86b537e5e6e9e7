"""Code in a run directory: said when it runs, and refused where others can replace it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import flambeau as fb
from flambeau.checkpoint import RunDirectory
from flambeau.checkpoint.user_code import Packer
from flambeau.cli.given import open_run
from flambeau.errors import UntrustedError
from flambeau.runs.stored_code import allow_code
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parents[1] / "inference"))
from small_runs import Mlp, write_run, write_zoo_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run whose model is stored by value."""
    made = write_run(tmp_path, "Mlp")
    packer = Packer()
    ref = packer.add(Mlp(), "model")
    packer.write(made.code)
    job = yaml.safe_load(made.job_file.read_text())
    made.job_file.write_text(yaml.safe_dump({**job, "model": ref.model_dump(mode="json")}))
    return made


def test_it_is_said_that_code_by_value_runs(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = fb.Predictor.load(run.path)
    predictor.refresh()
    said = f"{run.path} holds code by value, which runs now with your rights: model\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "place",
    [
        lambda run: run.path,
        lambda run: run.code,
        lambda run: run.job_file,
        lambda run: run.code / "model.pkl",
    ],
)
@pytest.mark.parametrize(
    "use", [lambda run: fb.Predictor.load(run.path), lambda run: open_run(str(run.path))]
)
def test_code_that_others_can_replace_does_not_run(
    run: RunDirectory,
    place: Callable[[RunDirectory], Path],
    use: Callable[[RunDirectory], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = place(run)
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(UntrustedError, match=rf"{path} can be written by other users.*chmod"):
        use(run)
    allow_code(run, read_settings(run), trust=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another group")
def test_a_group_of_others_counts_and_the_own_group_does_not(run: RunDirectory) -> None:
    run.path.chmod(0o775)
    allow_code(run, read_settings(run))
    os.chown(run.path, -1, 12345)
    with pytest.raises(UntrustedError, match="other users"):
        allow_code(run, read_settings(run))


def test_a_model_of_flambeau_brings_no_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = write_zoo_run(tmp_path, "resnet20", {"in_channels": 1, "classes": 2})
    made.path.chmod(0o777)
    allow_code(made, read_settings(made))
    assert not capsys.readouterr().err
