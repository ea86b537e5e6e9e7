"""All roles of a job in one process, as the coordinator sees them: no training, only messages."""

import heapq
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, final

import zmq

from flambeau.coordination.coordinator_client import HEARTBEAT_SECONDS
from flambeau.coordination.file_messages import AgentBeat, AgentJoined
from flambeau.coordination.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    Begin,
    Heartbeat,
    Messages,
    RoleDone,
    RoleExited,
    RoleJoined,
    ServerReady,
    StartRoles,
    Stop,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.messaging.credentials import credentials
from flambeau.messaging.transport import set_limits

JOIN_SECONDS = 60.0
AGENT, PULSE = b"agent", b"pulse"
#: How many messages are handled before the time is looked at.
_AT_ONCE = 64


@dataclass
class Figures:
    """What was measured: messages in both directions, and how long each answer took, in seconds."""

    messages: int
    seconds: float
    latencies: list[float]

    def latency_ms(self, quantile: float) -> float:
        """Return a quantile of the latencies in milliseconds; NaN if there are none."""
        if not self.latencies:
            return math.nan
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


@final
class Connections:
    """One connection for each role, all of one socket: polling a thousand sockets takes too long.

    What arrives at the coordinator is the same as of one `messaging.Client` for each.
    """

    def __init__(self, address: str, secret: bytes) -> None:
        self._address, self._secret = address, secret
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        set_limits(self._socket, MAX_FRAME_BYTES)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.router_mandatory = True
        self._socket.reconnect_ivl = -1
        self.messages = 0

    def open(self, name: bytes) -> None:
        """Connect once more, by this name."""
        credentials(self._secret, encrypt=False).show(self._socket)
        self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, name)
        self._socket.connect(self._address)

    def send(self, name: bytes, message: Messages) -> None:
        """Send on the connection of this name."""
        self.messages += 1
        self._socket.send_multipart([name, *CODEC.encode(message)])

    def receive(self, timeout: float) -> tuple[bytes, Messages] | None:
        """Return the next message and the connection it came on; None after `timeout` seconds."""
        if not self._socket.poll(math.ceil(1000 * timeout)):
            return None
        self.messages += 1
        name, *frames = self._socket.recv_multipart()
        return name, CODEC.decode([memoryview(frame) for frame in frames])[0]

    def close(self) -> None:
        """Send what is queued and end."""
        self._context.destroy(linger=1000)


class Simulation(ABC):
    """An agent, workers and servers. `saturating`: workers do not train, but answer at once."""

    def __init__(self, address: str, secret: bytes, workers: int, servers: int) -> None:
        self.connections = Connections(address, secret)
        self.workers, self.servers = workers, servers
        self.saturating = False
        self.latencies: list[float] = []
        self.specs: dict[bytes, RoleSpec] = {}
        self._due: list[tuple[float, int, float, Callable[[], None]]] = []
        self._count = itertools.count()
        self._begun: set[bytes] = set()
        self._stopped: set[bytes] = set()

    # The life of a job

    def join(self) -> None:
        """Have the coordinator start the roles, and let them begin."""
        self.connections.open(AGENT)
        self.connections.open(PULSE)
        joined = AgentJoined(0, "localhost", "simulated", [0], incarnation="simulated")
        self.connections.send(AGENT, joined)
        beat = AgentBeat(0, "simulated")
        self.every(HEARTBEAT_SECONDS, lambda: self.connections.send(PULSE, beat))
        self.run_until(lambda: len(self._begun) == self.workers and self.ready)

    def connect(self) -> None:
        """Start the roles without being asked, where no coordinator is."""
        for role, count in ((Role.WORKER, self.workers), (Role.SERVER, self.servers)):
            for rank in range(count):
                self._start(RoleSpec(role, rank, count, rank, count, 0, 0))
        self.connections.open(AGENT)
        for name in self._names(Role.WORKER):
            self.begin(name)

    def finish(self) -> None:
        """Report that workers are done, then servers, and that all have ended."""
        self.saturating = False
        for role in (Role.WORKER, Role.SERVER):
            for name in self._names(role):
                self.connections.send(name, RoleDone(self.specs[name], "finished", {}))
            if role is Role.WORKER:
                self.run_until(lambda: len(self._stopped) == self.servers)
        self.disconnect()

    def disconnect(self) -> None:
        """Report that all roles have ended."""
        for spec in self.specs.values():
            self.connections.send(AGENT, RoleExited(spec, 0))

    def close(self) -> None:
        """End all connections."""
        self.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, spec: RoleSpec) -> None:
        name = f"{spec.role}{spec.rank}".encode()
        self.specs[name] = spec
        self.connections.open(name)
        self.connections.send(name, RoleJoined(spec, 1))
        if spec.role is Role.SERVER:
            self.connections.send(name, ServerReady(spec, "tcp://simulated"))
        marks = itertools.count(1)
        self.every(
            HEARTBEAT_SECONDS,
            lambda: self.connections.send(name, Heartbeat(spec, next(marks))),
            spec.rank / spec.world,
        )

    def _names(self, role: Role) -> list[bytes]:
        return [name for name, spec in self.specs.items() if spec.role is role]

    # What a strategy does

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether all workers have something to do."""

    @abstractmethod
    def begin(self, worker: bytes) -> None:
        """A worker begins."""

    @abstractmethod
    def pace(self) -> None:
        """Plan what workers do at the speed of training."""

    @abstractmethod
    def saturate(self) -> None:
        """Do all that waits at once, and from now on each thing as soon as the last is answered."""

    @abstractmethod
    def handle(self, name: bytes, message: Messages) -> None:
        """Act on what the coordinator sends to a role."""

    # Time

    def measure(self, seconds: float) -> Figures:
        """Run, and return what happened meanwhile."""
        before, began = self.connections.messages, time.perf_counter()
        self.latencies = []
        self.run(seconds)
        elapsed = time.perf_counter() - began
        return Figures(self.connections.messages - before, elapsed, self.latencies)

    def every(self, period: float, action: Callable[[], None], phase: float = 0.0) -> None:
        """Do something again and again, first after `phase` periods."""
        first = time.perf_counter() + phase * period
        heapq.heappush(self._due, (first, next(self._count), period, action))

    def run(self, seconds: float) -> None:
        """Act for some seconds."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._step(until)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Act until a condition is met."""
        until = time.perf_counter() + JOIN_SECONDS
        while not condition():
            if time.perf_counter() > until:
                raise RuntimeError(f"the coordinator did not do its part in {JOIN_SECONDS:g} s")
            self._step(until)

    def _step(self, until: float) -> None:
        now = time.perf_counter()
        while self._due and self._due[0][0] <= now:
            at, number, period, action = heapq.heappop(self._due)
            action()
            heapq.heappush(self._due, (at + period, number, period, action))
        next_due = min([until, *(item[0] for item in self._due[:1])])
        received = self.connections.receive(max(0.0, next_due - time.perf_counter()))
        handled = 0
        while received is not None:
            self._handle(*received)
            handled += 1
            received = self.connections.receive(0) if handled < _AT_ONCE else None

    def _handle(self, name: bytes, message: Messages) -> None:
        if isinstance(message, StartRoles):
            for spec in message.roles:
                self._start(spec)
        elif isinstance(message, Begin):
            self._begun.add(name)
            self.begin(name)
        elif isinstance(message, Stop):
            self._stopped.add(name)
        else:
            self.handle(name, message)
