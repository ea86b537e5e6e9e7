"""Commands that may not read or write a place: one line that names it, and no traceback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from flambeau.cli.app import app
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, command)
    print(json.dumps([result.exit_code, result.output]))
"""


def as_a_user(*command: str) -> list[str]:
    """The command without the capabilities by which root may write everywhere."""
    if os.geteuid() != 0:
        return [*command]
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to change that")
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *command]


def test_places_without_permission_are_named(tmp_path: Path) -> None:
    sys.path.append(str(TESTS / "unit" / "inference"))
    from small_runs import write_run

    run = write_run(tmp_path, "Mlp").path
    data = str(tmp_path / "clicks.parquet")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    libffm = tmp_path / "rows.libffm"
    libffm.write_text("1 0:1:1 1:2:1\n0 0:0:1 1:3:1\n")
    (tmp_path / "hidden").mkdir()
    hidden = shutil.copytree(run, tmp_path / "hidden" / "run")
    (hidden / "checkpoints").chmod(0)
    model = str(tmp_path / "m.pt")
    commands = [
        ["predict", str(run), data, "--out", f"{closed}/scores.parquet"],
        ["predict", str(run), data, "--out", f"{closed}/scores"],
        ["export", str(run), "--out", f"{closed}/export"],
        ["generate", "clicks", "--out", f"{closed}/log", "--rows", "10"],
        ["evaluate", str(hidden), data],
        ["angel", "make", "lr", "--input_dim", "5", "--output", model],
        ["angel", f"trainInput:{libffm}", f"torchModelPath:{model}", f"modulePath:{closed}/m.pt"],
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        as_a_user(sys.executable, "-c", COMMANDS, json.dumps(commands)),
        capture_output=True,
        text=True,
        env=environment,
        timeout=180,
    )
    (hidden / "checkpoints").chmod(0o755)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    made = answers.pop(5)
    assert made[0] == 0, made
    for (code, output), command in zip(answers, commands[:5] + commands[6:], strict=True):
        assert code == 2, (command, output)
        assert "no permission" in output.splitlines()[-1], (command, output)
        assert "Traceback" not in output
    assert not any(closed.iterdir())
    assert not (tmp_path / "runs").exists()
