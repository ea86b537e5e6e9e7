import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flambeau.cli import doctor
from flambeau.cli.app import app
from flambeau.cli.demo import JOB
from flambeau.cli.doctor import Check
from flambeau.config.job_file import JobFile
from flambeau.version import __version__


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def flambeau(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_help_lists_every_command() -> None:
    shown = flambeau("--help").output
    for command in ("train", "run", "evaluate", "predict", "export", "angel", "doctor", "demo"):
        assert f" {command} " in shown


def test_the_version_is_told() -> None:
    assert flambeau("--version").output == f"flambeau {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "no.yaml"], "error: there is no file no.yaml\n"),
        (["run", "no.py"], "error: there is no script or program no.py; a module is run with -m\n"),
        (
            ["evaluate", "runs/no"],
            "error: runs/no is not a run directory: it has no job.yaml\n",
        ),
        (
            ["export", "runs/no", "--out", "x", "--format", "onxx"],
            "error: format='onxx' is not known; did you mean 'onnx'?\n",
        ),
        (
            ["export", "runs/no", "--out", "x"],
            "error: runs/no is not a run directory: it has no job.yaml\n",
        ),
        (
            ["predict", "runs/no@last", "x", "--out", "y.csv"],
            "error: 'runs/no@last': after '@' write best, latest or step-N\n",
        ),
    ],
)
def test_a_users_mistake_is_one_line(arguments: list[str], message: str) -> None:
    result = flambeau(*arguments)
    assert (result.exit_code, result.stderr, result.stdout) == (2, message, "")


def test_an_unknown_option_is_a_mistake_of_usage() -> None:
    assert flambeau("train", "--nothing").exit_code == 2


@pytest.mark.parametrize(
    ("name", "ok", "code"),
    [("torch", True, 0), ("torch", False, 1), ("folder", False, 1), ("ray", False, 0)],
)
def test_doctor_fails_only_without_what_every_job_needs(
    monkeypatch: pytest.MonkeyPatch, name: str, ok: bool, code: int
) -> None:
    monkeypatch.setattr(doctor, "report", lambda: [Check(name, ok, "as found")])
    assert flambeau("doctor").exit_code == code


def test_doctor_tells_a_program_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "report", lambda: [Check("torch", True, "2.13")])
    assert json.loads(flambeau("doctor", "--json").stdout) == [
        {"name": "torch", "ok": True, "detail": "2.13", "remedy": None}
    ]


def test_the_demos_job_is_valid() -> None:
    job = {**JOB, "train": "day_0.tsv", "run_dir": "runs/demo"}
    assert JobFile.parse(job).settings().cluster.workers == 2
