"""The agent: joins the coordinator, starts roles on request, and forwards their output."""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import zmq
from msgspec.structs import replace

from flambeau.clusters.affinity.bindings import Binding, plan_bindings
from flambeau.clusters.affinity.processors import Processors, read_processors
from flambeau.clusters.base import Launch
from flambeau.clusters.file_transfer.file_parts import INIT, sees, write_part
from flambeau.clusters.file_transfer.mirror import Mirror
from flambeau.clusters.machine import machine_identity
from flambeau.clusters.out_of_memory import OutOfMemoryKills
from flambeau.clusters.process_starter import make_starter
from flambeau.clusters.role_process import OutputLines, RunningRole
from flambeau.coordination.coordinator_client import HEARTBEAT_SECONDS
from flambeau.coordination.file_messages import (
    AgentBeat,
    AgentJoined,
    FilePart,
    FilesStored,
    KeepFiles,
    Spooled,
    WantFiles,
)
from flambeau.coordination.payloads import Payload, RunPayload, Site, TrainingPayload
from flambeau.coordination.protocol import (
    CODEC,
    EndRole,
    EndRoles,
    Messages,
    RoleExited,
    RoleOutput,
    ShowStacks,
    Shutdown,
    StartRoles,
)
from flambeau.coordination.roles import RoleSpec
from flambeau.errors import MessagingError
from flambeau.kernels.cores import usable_cores
from flambeau.messaging import Client

if TYPE_CHECKING:
    from flambeau.clusters.file_transfer.depot import Depot
    from flambeau.clusters.spool import Spool

POLL_SECONDS = 0.1
CLOSE_SECONDS = 30.0
#: If the coordinator's transport is silent for this long, an agent ends its roles and itself.
SILENCE_SECONDS = 120.0


def agent_main(
    launch: Launch,
    agent: int,
    host: str,
    fill: Callable[[], "Spool"] | None = None,
    *,
    machine: str | None = None,
    lifeline: int | None = None,
) -> None:
    """Serve the coordinator until it sends `Shutdown`. Leave no process behind.

    `fill` stores the engine's data for the roles to read. `machine` is for launchers that know
    better than the kernel which agents are on one machine. When the pipe `lifeline` closes, the
    process that started the agent has ended, and the agent ends, too.
    """
    mirror = _open_mirror(launch)
    client = Client(CODEC, launch.secret, launch.coordinator, silence_seconds=SILENCE_SECONDS)
    worker, incarnation = Agent(launch, client, mirror, lifeline), uuid.uuid4().hex
    where = machine or machine_identity()
    hello = AgentJoined(agent, host, where, usable_cores(), mirror is None, incarnation)
    with beating(launch, AgentBeat(agent, incarnation)):
        try:
            worker.serve(hello, fill)
        finally:
            worker.close()


@contextlib.contextmanager
def beating(launch: Launch, beat: AgentBeat) -> Iterator[None]:
    """Send heartbeats over a separate connection, even while other work takes long."""
    over = threading.Event()

    def run() -> None:
        client = Client(CODEC, launch.secret, launch.coordinator)
        while client.send(beat) and not over.wait(HEARTBEAT_SECONDS):
            pass
        client.close(linger=0)

    thread = threading.Thread(target=run, name="flambeau-agent-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=CLOSE_SECONDS)


def _open_mirror(launch: Launch) -> Mirror | None:
    """Create a directory for this agent if it does not see the run directory."""
    payload = launch.payload
    if not isinstance(payload, RunPayload) or not launch.token:
        return None
    if sees(payload.run_dir, launch.token):
        return None
    return Mirror(launch.mirrors, launch.carry_bytes, _open_depot(launch.depot))


def _open_depot(url: str | None) -> "Depot | None":
    if url is None:
        return None
    from flambeau.clusters.file_transfer.depot import Depot

    return Depot(url)


def site_of(payload: Payload, mirror: Mirror | None) -> Site:
    """Return where roles find the run of a payload and its initial weights."""
    if not isinstance(payload, RunPayload):
        return Site()
    root = payload.run_dir if mirror is None else str(mirror.root)
    initial = payload.initial if isinstance(payload, TrainingPayload) else None
    if mirror is not None and initial is not None and initial.checkpoint is not None:
        initial = replace(initial, reference=f"{root}/{INIT}@{initial.checkpoint}")
    return Site(root, initial)


class Agent:
    """An agent, which starts, watches and ends the roles of one machine."""

    def __init__(
        self,
        launch: Launch,
        client: Client[Messages],
        mirror: Mirror | None = None,
        lifeline: int | None = None,
    ) -> None:
        self._launch = launch
        self._client = client
        self._mirror = mirror
        self._lifelines = () if lifeline is None else (lifeline,)
        self._site = site_of(launch.payload, mirror)
        self._agent = 0
        self._starter = make_starter(launch)
        self._running: list[RunningRole] = []
        self._memory = OutOfMemoryKills()
        self._shutdown = False

    def serve(self, hello: AgentJoined, fill: Callable[[], "Spool"] | None = None) -> None:
        """Run the agent's loop."""
        self._agent = hello.agent
        self._site = replace(self._site, host=hello.host)
        self._client.send(hello)
        if fill is not None:
            self._take_in(fill())
        while not (self._shutdown and not self._running):
            poller = zmq.Poller()
            poller.register(self._client.socket, zmq.POLLIN)
            outputs = self._open_outputs()
            for descriptor in (*outputs, *self._lifelines):
                poller.register(descriptor, zmq.POLLIN)
            ready = dict(poller.poll(int(POLL_SECONDS * 1000)))
            if self._client.problem is not None and not self._shutdown:
                raise MessagingError(f"the coordinator is gone: {self._client.problem}")
            if any(pipe in ready and not os.read(pipe, 4096) for pipe in self._lifelines):
                raise MessagingError("the process that has started this agent is gone")
            if self._client.socket in ready:
                self._obey()
            for descriptor, (role, lines) in outputs.items():
                if descriptor in ready:
                    self._forward(role, lines)
            self._reap()

    def close(self) -> None:
        """End all roles that still run, close the connection and remove the mirror."""
        for role in self._running:
            role.end(grace=0)
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._running and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)
        self._client.close()
        if self._mirror is not None:
            self._mirror.remove()

    def _take_in(self, spool: "Spool") -> None:
        """Make the stored data available to roles, and report its size."""
        self._site = replace(self._site, home=self._agent, spooled=spool.descriptors)
        fds = (*self._launch.fds, *spool.descriptors.values())
        self._launch = replace(self._launch, fds=fds)
        self._starter = make_starter(self._launch)
        self._client.send(
            Spooled(self._agent, spool.rows, spool.size, spool.nulls, spool.checksums)
        )

    def _open_outputs(self) -> dict[int, tuple[RunningRole, OutputLines]]:
        return {
            descriptor: (role, lines)
            for role in self._running
            for descriptor, lines in role.outputs.items()
            if not lines.ended
        }

    def _obey(self) -> None:
        received = self._client.receive(0)
        if received is None:
            return
        message, buffers = received
        if isinstance(message, FilePart | FilesStored | WantFiles | KeepFiles):
            self._carry(message, buffers)
        elif isinstance(message, StartRoles):
            self._start(message)
        elif isinstance(message, EndRoles):
            for role in self._running:
                if role.spec.generation == message.generation:
                    role.end(message.grace)
        elif isinstance(message, EndRole):
            for role in self._running:
                if role.spec == message.spec:
                    role.end(grace=0)
        elif isinstance(message, ShowStacks):
            for role in self._running:
                if role.spec == message.spec:
                    role.show_stacks()
        elif isinstance(message, Shutdown):
            self._shutdown = True
            for role in self._running:
                role.end(grace=0)

    def _carry(
        self, message: FilePart | FilesStored | WantFiles | KeepFiles, buffers: Sequence[Any]
    ) -> None:
        assert self._mirror is not None
        if isinstance(message, FilePart):
            write_part(self._mirror.root, message, buffers[0])
        elif isinstance(message, FilesStored):
            self._mirror.fetch(message.names)
        elif isinstance(message, WantFiles):
            self._mirror.send(self._agent, message.directory, self._client.send)
        else:
            self._mirror.forget(message.checkpoints)

    def _start(self, message: StartRoles) -> None:
        site = replace(self._site, spools=message.spools, frames_digest=message.frames_digest)
        for spec in message.roles:
            role = RunningRole(self._launch, site, spec, self._binding_of(spec), self._starter)
            self._running.append(role)

    def _binding_of(self, spec: RoleSpec) -> Binding:
        launch = self._launch
        if not spec.role.in_group:
            return Binding(tuple(usable_cores()), 1)  # other roles share all cores
        if not launch.affinity:
            return Binding((), launch.threads_per_worker)
        if not launch.pinned:
            return Binding((), launch.threads_per_worker or 1)
        part, parts = spec.core_share
        return plan_bindings(
            self._processors,
            parts,
            threads=launch.threads_per_worker,
            threads_per_core=launch.threads_per_core,
        )[part]

    @functools.cached_property
    def _processors(self) -> Processors:
        return read_processors()

    def _forward(self, role: RunningRole, lines: OutputLines) -> None:
        text = lines.read()
        if text:
            self._client.send(RoleOutput(role.spec, lines.name, text))

    def _reap(self) -> None:
        for role in list(self._running):
            role.enforce()
            code = role.process.poll()
            if code is None:
                continue
            self._running.remove(role)
            self._drain(role)
            role.finish()
            lacking = code == -signal.SIGKILL and self._memory.new()
            self._client.send(RoleExited(role.spec, code, lacking))

    def _drain(self, role: RunningRole) -> None:
        """Forward the last output of an ended process; its children may hold the pipe open."""
        deadline = time.monotonic() + 1
        for lines in role.outputs.values():
            while not lines.ended and time.monotonic() < deadline:
                text = lines.read()
                if not text and not lines.ended:
                    break
                if text:
                    self._client.send(RoleOutput(role.spec, lines.name, text))


if __name__ == "__main__":
    from flambeau.clusters.agent_process import main

    sys.exit(main(sys.argv[1:]))
