"""The agent's side of a role: its process, lifeline pipe and output."""

import os
import signal
import time
from typing import IO

from flambeau.clusters.affinity import openmp
from flambeau.clusters.affinity.bindings import Binding
from flambeau.clusters.base import Launch
from flambeau.clusters.child_process import STACKS_SIGNAL, ChildSpec, write_message
from flambeau.clusters.process_starter import Starter
from flambeau.coordination.payloads import Site
from flambeau.coordination.roles import RoleSpec

MAX_LINE = 64 * 1024


class RunningRole:
    """A started role, the leader of its own process group, which ends with it."""

    def __init__(
        self,
        launch: Launch,
        site: Site,
        spec: RoleSpec,
        binding: Binding,
        starter: Starter,
    ) -> None:
        self.spec = spec
        self.kill_at: float | None = None
        read_end, self._lifeline = os.pipe()
        self.process = starter.start(read_end, openmp.environment_of(binding))
        os.close(read_end)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.outputs = {
            self.process.stdout.fileno(): OutputLines("stdout", self.process.stdout),
            self.process.stderr.fileno(): OutputLines("stderr", self.process.stderr),
        }
        child = ChildSpec(
            coordinator=launch.coordinator,
            secret=launch.secret,
            spec=spec,
            payload=launch.payload,
            site=site,
            python_path=list(launch.python_path),
            cores=list(binding.cpus),
        )
        write_message(self._lifeline, child)

    def end(self, grace: float) -> None:
        """Kill the role; with `grace`, send SIGTERM and kill it that many seconds later.

        `grace` is for scripts: other roles ignore SIGTERM, see `outside_signals`.
        """
        if self.process.pid is None:
            grace = 0  # it is not forked yet
        if grace > 0 and self.kill_at is None:
            self._signal(signal.SIGTERM)
        self.kill_at = min(time.monotonic() + grace, self.kill_at or float("inf"))
        self.enforce()

    def show_stacks(self) -> None:
        """Make the role print its Python stacks, but not the processes that it has started."""
        if self.process.pid is not None and self.process.poll() is None:
            os.kill(self.process.pid, STACKS_SIGNAL)

    def enforce(self) -> None:
        """Kill the role if its grace period is over."""
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._signal(signal.SIGKILL)

    def finish(self) -> None:
        """Clean up after its exit: kill what it has started, and close our ends of its pipes."""
        self._signal(signal.SIGKILL)
        os.close(self._lifeline)
        for lines in self.outputs.values():
            lines.stream.close()

    def _signal(self, number: int) -> None:
        if self.process.pid is None:
            return  # `enforce` will be called again
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return  # the whole group has already ended


class OutputLines:
    """A reader of complete lines from a child's output."""

    def __init__(self, name: str, stream: IO[bytes]) -> None:
        self.name = name
        self.stream = stream
        self._rest = b""
        self.ended = False
        os.set_blocking(stream.fileno(), False)

    def read(self) -> list[str]:
        """Return the lines that have arrived; at the end of the stream, also an incomplete one."""
        try:
            data = os.read(self.stream.fileno(), MAX_LINE)
        except BlockingIOError:
            return []
        if not data:
            self.ended = True
            lines, self._rest = ([self._rest] if self._rest else []), b""
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MAX_LINE:
                lines, self._rest = [*lines, self._rest], b""
        return [line.decode(errors="replace") for line in lines]
