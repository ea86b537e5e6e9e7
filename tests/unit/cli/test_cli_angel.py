"""`flambeau angel` as far as it starts no processes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flambeau.cli.angel import EpochLines
from flambeau.cli.app import app
from flambeau.observe import Event


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def angel(*words: str) -> Result:
    return CliRunner().invoke(app, ["angel", *words])


def test_make_writes_a_file_named_by_the_algorithm() -> None:
    assert angel("make", "lr", "--input_dim", "4").output == "written: lr.pt\n"
    assert Path("lr.pt").is_file()


def test_make_shows_its_arguments() -> None:
    assert "--cross_depth" in angel("make", "dcn", "--help").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["make", "dnc"], "make: unknown algorithm 'dnc'; did you mean 'dcn'?"),
        (["trianInput:a"], "unknown argument 'trianInput'; did you mean 'trainInput'?"),
        (["trainInput:a", "torchModelPath:no.pt"], "the model file no.pt cannot be read"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    result = angel(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")


def test_words_without_meaning_are_named() -> None:
    result = angel("trainInput:a", "torchModelPath:no.pt", "rowType:T")
    assert result.stderr.startswith("ignored, since they have no effect here: rowType\n")


def test_evaluations_are_shown_and_other_events_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = EpochLines(("auc",))
    lines.observe(Event("progress", 0.0, {}))
    fields = {"epoch": 3, "metrics": {"train/loss": 0.25, "loss": 0.5, "auc": 0.75}}
    lines.observe(Event("evaluation", 0.0, fields))
    lines.close()
    expected = "epoch 3 loss 0.250000 validate loss 0.500000 validate auc 0.750000\n"
    assert capsys.readouterr().out == expected
