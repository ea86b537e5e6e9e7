"""What hosts must have, and the command that runs Flambeau there."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from flambeau.clusters.ssh.host_messages import Hello
from flambeau.clusters.ssh.problems import ProblemKind
from flambeau.clusters.ssh.requirements import lacking, mismatch, remote_command
from flambeau.version import __version__

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH = metadata.version("torch")
SAME = Hello(__version__, PYTHON, TORCH, "10.0.0.1", "10.0.0.2")


def test_the_same_versions_are_no_problem() -> None:
    assert mismatch("node1", "ssh", "python", SAME) is None
    patched = ".".join([*TORCH.split(".")[:2], "99+cu130"])
    assert mismatch("node1", "ssh", "python", msgspec.structs.replace(SAME, torch=patched)) is None


@pytest.mark.parametrize(
    ("other", "text", "command"),
    [
        ({"flambeau": "0.0.9"}, "it has Flambeau 0.0.9, this driver", f"flambeau=={__version__}"),
        ({"torch": "1.0.0"}, "it has torch 1.0.0, this driver torch", "pip install torch=="),
        ({"torch": None}, "it has no torch, this driver torch", "pip install torch=="),
        ({"python": "3.99"}, f"py is Python 3.99 there, and {PYTHON} here", f"-v python{PYTHON}"),
    ],
)
def test_another_version_is_named_with_what_helps(
    other: dict[str, str], text: str, command: str
) -> None:
    problem = mismatch("node1", "ssh -F x", "py", msgspec.structs.replace(SAME, **other))
    assert problem is not None
    assert problem.kind is ProblemKind.VERSION
    assert text in problem.text
    assert problem.command.startswith("ssh -F x node1 ")
    assert command in problem.command


@pytest.mark.parametrize(
    ("errors", "kind", "text"),
    [
        ("No module named flambeau", ProblemKind.FLAMBEAU, "lacks Flambeau"),
        (
            "Error while finding module specification for 'x' (ModuleNotFoundError: No module "
            "named 'flambeau')",
            ProblemKind.FLAMBEAU,
            "lacks Flambeau",
        ),
        ("No module named flambeau.clusters.ssh", ProblemKind.VERSION, "an older Flambeau"),
        ("No module named 'zmq'", ProblemKind.FLAMBEAU, "lacks the module zmq"),
    ],
)
def test_what_a_python_lacks_is_read_from_its_error(
    errors: str, kind: ProblemKind, text: str
) -> None:
    problem = lacking("node1", "ssh", "/py", errors)
    assert problem is not None
    assert problem.kind is kind
    assert text in problem.text
    assert f"ssh node1 /py -m pip install flambeau=={__version__}" in problem.command


def test_another_error_is_not_taken_for_a_lack() -> None:
    assert lacking("node1", "ssh", "python", "Permission denied (publickey).") is None


def run(python: str, folder: str) -> subprocess.CompletedProcess[str]:
    command = remote_command(python, folder, "flambeau.version --hello")
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


def test_the_command_runs_in_the_folder_with_the_python(tmp_path: Path) -> None:
    folder = tmp_path / "my folder's"
    folder.mkdir()
    python = folder / "python"
    python.write_text('#!/bin/sh\npwd\necho "$@"\n')
    python.chmod(0o755)
    for each in (str(python), "./python"):
        done = run(each, str(folder))
        assert done.stdout == f"{folder}\n-u -m flambeau.version --hello\n"


def test_a_folder_that_is_not_there_is_left_out_and_a_python_is_named(tmp_path: Path) -> None:
    done = run(str(tmp_path / "python"), str(tmp_path / "none"))
    assert done.returncode == 127
    problem = lacking("node1", "ssh", "p", done.stderr)
    assert problem is not None
    assert problem.kind is ProblemKind.PYTHON
