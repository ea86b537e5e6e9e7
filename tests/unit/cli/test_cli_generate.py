"""`flambeau generate clicks`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flambeau.cli.app import app

SMALL = ["generate", "clicks", "--rows", "1_000", "--ids", "500", "--days", "2"]


def test_it_writes_a_log_and_shows_the_best_scores(tmp_path: Path) -> None:
    out = tmp_path / "clicks"
    done = CliRunner().invoke(app, [*SMALL, "--out", str(out), "--labels", "click,conversion"])
    assert done.exit_code == 0, done.output
    best = json.loads((out / "truth.json").read_text())["overall"]
    lines = done.stdout.splitlines()
    assert lines[0] == f"1,000 rows of 2 days written to {out}"
    for task in ("click", "conversion", "conversion_after_click"):
        (line,) = (line for line in lines if line.startswith(f"  {task} "))
        assert f"auc {best[task]['auc']:.4f}  logloss {best[task]['logloss']:.4f}" in line


def test_scores_that_are_not_there_are_dashes(tmp_path: Path) -> None:
    command = ["generate", "clicks", "--rows", "1", "--days", "1", "--ids", "30"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "  click  auc -  logloss " in done.stdout


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--rows", "0"], "rows=0"),
        (["--fields", "0"], "fields=0"),
        (["--fields", "501"], "ids=500: 501 fields need an id each at least"),
        (["--labels", "conversion"], "use click, or click,conversion"),
        (["--labels", "clik"], "did you mean 'click'"),
        (["--format", "csv"], "format='csv'"),
    ],
)
def test_what_cannot_be_generated_is_explained(
    wrong: list[str], message: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path / "new"), *wrong])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_log_is_replaced_only_by_force(tmp_path: Path) -> None:
    command = [*SMALL, "--out", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0


def test_the_group_without_a_command_shows_its_commands() -> None:
    assert "clicks" in CliRunner().invoke(app, ["generate", "--help"]).stdout
