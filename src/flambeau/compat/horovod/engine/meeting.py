"""How the ranks find each other, and the first of them the others."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

import torch.distributed as dist

from flambeau.clusters.attached.launchers import detected, own_address
from flambeau.clusters.attached.meeting_place import MeetingPlace
from flambeau.clusters.interfaces import address_of, host_of, local_address
from flambeau.clusters.machine import machine_identity
from flambeau.compat.horovod.engine.engine import Engine, Place
from flambeau.compat.horovod.engine.environment import (
    HorovodSettings,
    interface,
    own_ranks,
    without_address,
)
from flambeau.compat.horovod.negotiation.controller import Controller
from flambeau.compat.horovod.negotiation.messages import (
    CODEC,
    MAX_BYTES,
    Begin,
    Hello,
    Refused,
    Said,
)
from flambeau.config import Attached
from flambeau.errors import ConfigError
from flambeau.messaging import Client, Server, new_secret
from flambeau.version import __version__

LOOK_SECONDS = 0.05
#: A rank that is not answered looks for another place of rank 0.
SILENCE_SECONDS = 60.0
#: All calls of `init` of a job meet at one place: a rank that is restarted does not count them.
CALL = "horovod"
_STORE_KEY = "flambeau.horovod"


class _Finding(Protocol):
    """Where rank 0 listens and the others find it."""

    def open(self) -> Server[Said]:
        """Listen, as rank 0."""

    def find(self) -> tuple[str, bytes] | None:
        """Return address and secret of rank 0, if it is there."""

    def remove(self) -> None:
        """Forget them, once all have arrived."""


@final
class _ByLauncher:
    """By the meeting place of `fb.Attached`: a file, or an address that all know."""

    def __init__(self, place: MeetingPlace, host: str) -> None:
        self._place, self._host = place, host
        self.find, self.remove = place.find, place.remove

    def open(self) -> Server[Said]:
        return self._place.listen(self._host, CODEC, MAX_BYTES)


@final
class _ByStore:
    """By the store of torch.distributed, which the roles of `fb.run` keep authenticated."""

    def __init__(self, number: int, host: str) -> None:
        self._key, self._host = f"{_STORE_KEY}.{number}", host
        self._store = dist.distributed_c10d._get_default_store()

    def open(self) -> Server[Said]:
        secret = new_secret()
        server: Server[Said] = Server(CODEC, secret, self._host, max_bytes=MAX_BYTES)
        self._store.set(self._key, f"{server.address} {secret.hex()}")
        return server

    def find(self) -> tuple[str, bytes] | None:
        if not self._store.check([self._key]):
            return None
        address, secret = self._store.get(self._key).decode().split()
        return address, bytes.fromhex(secret)

    def remove(self) -> None:
        self._store.delete_key(self._key)


@dataclass
class _Counter:
    """How often this process has met others by the store."""

    meetings: int = 0


_counter = _Counter()


def met(settings: HorovodSettings) -> Engine:
    """Return this rank's engine, once all ranks have arrived."""
    if dist.is_initialized() and without_address():
        _counter.meetings += 1
        host = address_of(interface() or "lo") or "127.0.0.1"
        finding: _Finding = _ByStore(_counter.meetings, host)
        return _arrive(dist.get_rank(), dist.get_world_size(), finding, settings)
    identity = detected()
    if identity is None:
        return Engine(Place(0, 1), settings)
    attached = Attached()
    host = own_address(attached, identity)
    finding = _ByLauncher(MeetingPlace(attached, identity, CALL), host)
    return _arrive(identity.rank, identity.size, finding, settings)


def _arrive(rank: int, size: int, finding: _Finding, settings: HorovodSettings) -> Engine:
    if size == 1:
        return Engine(Place(0, 1), settings)
    controller = None
    engines: list[Engine] = []
    if rank == 0:
        controller = Controller(
            finding.open(),
            size,
            cache_capacity=settings.cache_capacity,
            stall_seconds=settings.stall_seconds,
            on_met=finding.remove,
            is_busy=lambda: bool(engines) and engines[0].executor.busy,
        )
    try:
        client, begin = _welcomed(rank, size, finding.find, settings.start_seconds)
    except BaseException:
        if controller is not None:
            controller.join(0)
        raise
    engine = Engine(_place(rank, begin.machines), settings)
    engines.append(engine)
    engine.connect(client, local_address(host_of(client.address)), controller)
    engine.meet()
    return engine


def _welcomed(
    rank: int, size: int, find: Callable[[], tuple[str, bytes] | None], seconds: float
) -> tuple[Client[Said], Begin]:
    """Return a connection to the controller and its answer, given once all ranks are there."""
    deadline = time.monotonic() + seconds
    hello = Hello(rank, size, machine_identity(), __version__)
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            address, secret = found
            client = Client(
                CODEC, secret, address, max_bytes=MAX_BYTES, silence_seconds=SILENCE_SECONDS
            )
            client.send(hello)
            begin = _answer(client, deadline)
            if begin is not None:
                return client, begin
            client.close(linger=0)
        time.sleep(LOOK_SECONDS)
    raise ConfigError(
        f"hvd.init(): rank {rank} of {size} on {socket.gethostname()} did not meet all others "
        f"within {seconds:.0f} s. Every rank must call hvd.init() and reach rank 0; a longer wait "
        "is HOROVOD_START_TIMEOUT"
    )


def _answer(client: Client[Said], deadline: float) -> Begin | None:
    """Return the controller's answer; None if there is none at this address."""
    while client.problem is None and time.monotonic() < deadline:
        received = client.receive(LOOK_SECONDS)
        if received is None:
            continue
        if isinstance(received[0], Begin):
            return received[0]
        if isinstance(received[0], Refused):
            if received[0].error:
                raise ConfigError(f"hvd.init(): {received[0].error}")
            return None
    return None


def _place(rank: int, machines: list[str]) -> Place:
    """Return where a rank is. Launchers number local ranks as they like; this goes by ranks."""
    mine = [each for each, machine in enumerate(machines) if machine == machines[rank]]
    hosts = list(dict.fromkeys(machines))
    counts = {machines.count(host) for host in hosts}
    local_rank = mine.index(rank)
    across = [host for host in hosts if machines.count(host) > local_rank]
    found = {
        "local_rank": local_rank,
        "local_size": len(mine),
        "cross_rank": across.index(machines[rank]),
        "cross_size": len(across),
    }
    found.update(own_ranks())
    return Place(rank, len(machines), **found, homogeneous=len(counts) == 1)
