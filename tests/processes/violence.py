"""Callbacks that kill processes of a job with servers, once per run; importable by the workers."""

import gc
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from flambeau.parameter_server.channel import Channel
from flambeau.parameter_server.protocol import Push
from flambeau.training.callbacks import Callback, TrainingView


def server_pid(shard: int) -> int:
    """The process that listens where this worker's requests to a shard go."""
    channel = next(o for o in gc.get_objects() if isinstance(o, Channel) and o.shard == shard)
    port = int(channel._address.rsplit(":", 1)[1])
    for process in psutil.process_iter():
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:
            continue
        if any(c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in connections):
            return process.pid
    raise AssertionError(f"nobody listens on port {port}")


class Kill(Callback):
    """On worker `rank`, after `step` of its own steps: kills servers, or itself, or both.

    A worker dies after it has sent its next gradient to the first shard, and before the second.
    """

    def __init__(
        self, rank: int, step: int, *, servers: tuple[int, ...] = (), worker: bool
    ) -> None:
        self.rank, self.step, self.servers, self.worker = rank, step, servers, worker
        self._steps = 0

    def on_step_end(self, view: TrainingView) -> None:
        self._steps += 1
        mark = Path(view.run_dir) / "struck"
        if view.rank != self.rank or self._steps != self.step or mark.exists():
            return
        mark.touch()
        for shard in self.servers:
            os.kill(server_pid(shard), signal.SIGKILL)
        if self.worker:
            self._die_between_two_pushes()

    def _die_between_two_pushes(self) -> None:
        send = Channel.send

        def send_and_die(channel: Channel, message: Any, buffers: Any = ()) -> int:
            number = send(channel, message, buffers)
            if isinstance(message, Push) and channel.shard == 0:
                time.sleep(0.1)  # so that the transport has sent it
                os.kill(os.getpid(), signal.SIGKILL)
            return number

        Channel.send = send_and_die  # type: ignore[method-assign]


class KillAll(Callback):
    """On worker 0, after `step` of its own steps: kills the fork server, and so all roles."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._steps = 0

    def on_step_end(self, view: TrainingView) -> None:
        self._steps += 1
        mark = Path(view.run_dir) / "struck"
        if view.rank == 0 and self._steps == self.step and not mark.exists():
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)


def random_violence(seed: int, steps: int) -> tuple[str, Kill]:
    """What happens in repetition `seed`: every consistency and every victim has its turn."""
    rng = random.Random(seed)
    consistency = ("synchronous", "asynchronous", "bounded")[seed % 3]
    victim = ("server", "worker", "both")[seed // 3 % 3]
    servers = (rng.randrange(2),) if victim != "worker" else ()
    kill = Kill(rng.randrange(2), rng.randint(1, steps), servers=servers, worker=victim != "server")
    return consistency, kill
