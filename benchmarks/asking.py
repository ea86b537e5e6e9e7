"""Processes that answer questions: a line of JSON in, a line of JSON out."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from turns import HERE, python_path

PATIENCE_SECONDS = 600

Answer = dict[str, Any]


class Program:
    """A script of `sides` as a process of its own, seen from the benchmark.

    It gets `settings` as its first line and ends when its input does, so none is left behind.
    """

    def __init__(
        self,
        script: str,
        *arguments: str,
        settings: Mapping[str, Any],
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        count = str(threads)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "sides" / script), *arguments],
            env={
                **os.environ,
                "PYTHONPATH": python_path(),
                "OMP_NUM_THREADS": count,
                "MKL_NUM_THREADS": count,
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._name = script
        self.tell(**settings)

    def ask(self, **question: Any) -> Answer:
        """Put a question, and wait for its answer."""
        self.tell(**question)
        return self.hear()

    def tell(self, **question: Any) -> None:
        """Put a question."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def rest(self) -> None:
        """Stop it until `wake`: some idle processes poll, and would slow down the other side."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """How long its threads have run so far (on Linux, to a hundredth of a second)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hear(self) -> Answer:
        """Wait for the next answer."""
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], PATIENCE_SECONDS)[0]:
            raise RuntimeError(f"{self._name} has not answered for {PATIENCE_SECONDS} s")
        line = output.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended before its time; see its output above")
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End its input and wait for its end, or make it end when something failed."""
        self.wake()
        if error is not None:
            self._process.terminate()
        self._process.communicate(timeout=PATIENCE_SECONDS)


def ask_all(programs: Sequence[Program], **question: Any) -> list[Answer]:
    """Put a question to several at once."""
    for program in programs:
        program.tell(**question)
    return [program.hear() for program in programs]


def settings() -> Answer:
    """In a script: the first line of its input."""
    values: Answer = json.loads(sys.stdin.readline())
    return values


def say(**answer: Any) -> None:
    """In a script: one answer."""
    print(json.dumps(answer), flush=True)


def answer_all(answer: Callable[..., Answer]) -> None:
    """In a script: answer every question, until there are no more."""
    for line in sys.stdin:
        say(**answer(**json.loads(line)))
