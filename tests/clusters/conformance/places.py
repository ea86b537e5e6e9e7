"""The clusters that the suite runs on, and how a program is started on each of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

JOB = Path(__file__).parent / "conformance_job.py"
SECONDS = 240.0


@dataclass
class Done:
    """A program that has ended, in one process or several."""

    code: int
    output: str

    @property
    def found(self) -> list[dict[str, Any]]:
        """What each process of it found, by scenario; they print at about the same time."""
        lines = [line.partition("FOUND ")[2] for line in self.output.splitlines()]
        processes: list[dict[str, Any]] = []
        for line in filter(None, lines):
            ((name, value),) = json.loads(line).items()
            free = next((each for each in processes if name not in each), None)
            if free is None:
                processes.append(free := {})
            free[name] = value
        return processes


@dataclass
class Place:
    """A way to start a program: `launcher` is put before it, for so many processes."""

    name: str
    kind: str
    launcher: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    #: Whether its engine has data frames.
    has_frames: bool = False
    #: Files that its settings name, by their names in the folder of the program.
    files: dict[str, str] = field(default_factory=dict)

    def processes(self, workers: int) -> int:
        """How many processes run the program."""
        return workers if self.kind in ("attached", "any") else 1

    def begin(self, scenario: str, folder: Path, workers: int = 2) -> subprocess.Popen[str]:
        """Start a scenario of the suite, below a folder."""
        words = [str(JOB), self.kind, scenario, str(folder), str(workers)]
        return self.start(sys.executable, *words, folder=folder, workers=workers)

    def start(self, *command: str, folder: Path, workers: int = 2) -> subprocess.Popen[str]:
        """Start a command in a folder, under the launcher."""
        for name, text in self.files.items():
            (folder / name).write_text(text)
        before = [word.format(n=workers) for word in self.launcher]
        return subprocess.Popen(
            [*before, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment},
            start_new_session=True,
            cwd=folder,
        )

    def send_signal(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        """Send what a terminal does, or a scheduler to all processes of a launcher.

        (Open MPI's own mpirun kills its processes half a second after Ctrl-C.)
        """
        if self.kind == "spark":
            os.kill(process.pid, number)  # its Java has handlers of its own
            return
        if self.kind in ("local", "ray", "ssh"):
            os.killpg(process.pid, number)
            return
        for program in programs(process):
            program.send_signal(number)

    def run(self, scenario: str, folder: Path, workers: int = 2) -> Done:
        """Run a scenario to its end."""
        return finish(self.begin(scenario, folder, workers))


def finish(process: subprocess.Popen[str]) -> Done:
    """Wait for the end of a program."""
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"it did not end:\n{output}") from None
    return Done(process.returncode, output)


def await_file(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a program has written a file."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert process.poll() is None, finish(process).output
        assert time.monotonic() < deadline, "it never began"
        time.sleep(0.05)


def programs(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that run the program itself, in the order in which they were started."""
    whole = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    found = [each for each in whole if str(JOB) in each.cmdline() and "-c" not in each.cmdline()]
    return [each for each in found if each.cmdline()[0] == sys.executable]
