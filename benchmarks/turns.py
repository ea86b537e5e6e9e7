"""Taking turns: two trainings stay alive, and only one of them computes at a time.

Starting processes takes seconds and differs from one start to the next; blocks of steps of two
trainings that are both warm can be compared within moments of each other.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from measure import Pairs, interleave

SOCKET = "turns"
PATIENCE_SECONDS = 300
TRIAL_BLOCKS = 3
HERE = Path(__file__).parent

Variant = TypeVar("Variant")


class Turn:
    """In a training: told when to go on, and tells how long its steps took.

    Only the first worker has one. The others wait for it in their next all-reduce.
    """

    def __init__(self, directory: Path, warm: int, timed: int) -> None:
        self._warm, self._block = warm, warm + timed
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(directory / SOCKET))
        self._since = 0.0

    def wait(self) -> bool:
        """Until it is this training's turn. False: no turn is left, and the training may end."""
        return bool(self._socket.recv(1))

    def report(self, seconds: float) -> None:
        """Tell how long the steps of a turn took."""
        self._socket.sendall(f"{seconds}\n".encode())

    def step_done(self, step: int) -> None:
        """To be called after each step; steps count from 1."""
        position = step % self._block
        if position == self._warm:
            self._since = time.perf_counter()
        elif position == 0:
            self.report(time.perf_counter() - self._since)
            self.wait()


class Side:
    """A training in processes of its own, seen from the benchmark.

    Each command of `commands` gets the directory in which the socket is as its last argument.
    """

    def __init__(self, directory: Path, commands: Sequence[Sequence[str]]) -> None:
        directory.mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / SOCKET))
        self._listener.listen()
        self._listener.settimeout(PATIENCE_SECONDS)
        environment = {**os.environ, "PYTHONPATH": python_path()}
        # Sessions of their own, as the workers of `fit` have: Linux shares time among sessions.
        self._processes = [
            subprocess.Popen(
                [*command, str(directory)],
                env=environment,
                stdout=sys.stderr,
                start_new_session=True,
            )
            for command in commands
        ]
        self._connection: socket.socket | None = None

    def block(self) -> float:
        """Let it run one block; the seconds of its timed steps."""
        if self._connection is None:
            self._connection, _ = self._listener.accept()
            self._connection.settimeout(PATIENCE_SECONDS)
        self._connection.sendall(b".")
        answer = self._connection.recv(100)
        if not answer:
            raise RuntimeError("a training ended before its time; see its output above")
        return float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it come to its end, or end it when something failed."""
        if self._connection is not None:
            self._connection.close()
        self._listener.close()
        for process in self._processes:
            if error is not None:
                process.terminate()
            process.wait(PATIENCE_SECONDS)


def fastest(variants: Sequence[Variant], start: Callable[[Variant, int], Side]) -> Variant:
    """The one with the shortest blocks, in a short run of all of them against each other.

    `start` starts one for so many blocks, of which the first is not counted.
    """
    times: dict[Variant, list[float]] = {variant: [] for variant in variants}
    with ExitStack() as stack:
        sides = {each: stack.enter_context(start(each, TRIAL_BLOCKS)) for each in variants}
        for _ in range(TRIAL_BLOCKS):
            for variant, side in sides.items():
                times[variant].append(side.block())
    return min(variants, key=lambda variant: statistics.median(times[variant][1:]))


def take_turns(ours: Side, peer: Side, pairs: int, speed: Callable[[float], float]) -> Pairs:
    """The speeds of both sides, from the seconds of blocks; their first is not counted."""
    ours.block()
    peer.block()
    return interleave(lambda: speed(ours.block()), lambda: speed(peer.block()), pairs)


def python_path() -> str:
    """For processes that import what is in this folder."""
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
