"""One rank between `init` and `shutdown`: its requests, its link and its executor."""

import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch._C import _distributed_c10d as c10d

from flambeau.compat.horovod.common.exceptions import HorovodInternalError
from flambeau.compat.horovod.engine.environment import HorovodSettings
from flambeau.compat.horovod.execution.collectives import TIMEOUT, Collectives
from flambeau.compat.horovod.execution.executor import Executor
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.negotiation.controller import Controller
from flambeau.compat.horovod.negotiation.link import Link
from flambeau.compat.horovod.negotiation.messages import ALL, Agreement, Request, Said
from flambeau.compat.horovod.negotiation.negotiator import Negotiator
from flambeau.messaging import Client
from flambeau.roles.coordinator_store import CoordinatorStore

#: Seconds that `shutdown` waits for the other ranks to finish the agreed operations.
LEAVE_SECONDS = 8.0


class DuplicateNameError(ValueError):
    """An operation with this name is already in flight."""


@dataclass(frozen=True)
class Place:
    """The position of a rank: among all ranks, on its machine, and among machines."""

    rank: int
    size: int
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    homogeneous: bool = True


@final
class Engine:
    """The requests of one rank for operations by name, and their results."""

    def __init__(self, place: Place, settings: HorovodSettings) -> None:
        self.place, self.settings = place, settings
        self.ranks_of: dict[int, list[int]] = {ALL: list(range(place.size))}
        self._collectives: dict[int, Collectives] = {}
        self._works: dict[tuple[int, str], Work] = {}
        #: Works that may wait for a lost rank, in a collective that cannot be interrupted.
        self._executing: list[Work] = []
        self._lock = threading.Lock()
        self._counts: defaultdict[tuple[str, int], itertools.count[int]] = defaultdict(
            itertools.count
        )
        self._joins, self._since = 0, ""
        self._reason = ""
        self._store: CoordinatorStore | None = None
        self._host = ""
        self._link: Link | None = None
        self._controller: Controller | None = None
        self._alone = Negotiator(1, capacity=0)
        self._process = os.getpid()
        self.executor = Executor(self, settings.fusion_bytes)
        if settings.timeline and place.rank == 0:
            self.executor.timeline.start(Path(settings.timeline))

    # Start and shutdown

    def connect(self, client: Client[Said], host: str, controller: Controller | None) -> None:
        """Use a connection to the controller, which has sent `Begin` to this rank."""
        self._host, self._controller = host, controller
        self._link = Link(
            client,
            self.place.rank,
            on_agreed=self._agreed,
            on_closing=self._closing,
            on_end=self._end,
        )
        self._store = CoordinatorStore(self._link, TIMEOUT)
        self._link.start()

    def meet(self) -> None:
        """Wait until the process groups of all ranks are connected, so that no operation has to."""
        work = Work(Request("barrier", "init"))
        self.submit([work])
        try:
            work.wait()
        except HorovodInternalError:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """Close the connections after all ranks have executed the agreed operations."""
        if self._process != os.getpid():  # a fork has no threads
            return
        failed = bool(self._reason)
        if self._link is not None:
            self._link.leave(LEAVE_SECONDS)
        self._end("Horovod has been shut down")
        if self._controller is not None:
            self._controller.join(LEAVE_SECONDS)
        for each in self._collectives.values():
            if failed:
                each.abort()
        self.executor.stop(1.0)
        self._collectives.clear()

    def _closing(self, finished: Callable[[], None]) -> None:
        self.executor.put(finished)

    def _end(self, reason: str) -> None:
        """Fail the operations in flight, and all later requests."""
        with self._lock:
            self._reason = self._reason or reason
            works, self._works = [*self._works.values(), *self._executing], {}
        for work in works:
            work.fail(reason)

    # Requests

    def name(self, kind: str, name: str | None, process_set: int) -> str:
        """Return the full name of an operation; one without a name is numbered."""
        if name is not None:
            return f"{kind}.{name}"
        return f"{kind}.noname{self._since}.{next(self._counts[kind, process_set])}"

    def renumber(self) -> None:
        """Restart the numbers of unnamed operations: ranks that had joined made fewer of them."""
        self._joins += 1
        self._since = f".after.join{self._joins}"
        self._counts.clear()

    def submit(self, works: Sequence[Work], *, wake: bool = True) -> None:
        """Request operations; without `wake` they are sent together with the next ones."""
        with self._lock:
            if self._reason:
                raise HorovodInternalError(self._reason)
            for work in works:
                self._register(work)
        requests = [work.request for work in works]
        self.executor.timeline.requested(requests)
        if self._link is None:
            self._negotiate(requests)
        else:
            self._link.submit(requests, wake=wake)

    def _negotiate(self, requests: Sequence[Request]) -> None:
        """Agree without a controller: there is one rank."""
        self._alone.submit(0, requests, 0.0)
        agreed = self._alone.take()
        if agreed is not None:
            self._agreed([each for each in agreed.items if isinstance(each, Agreement)])

    def flush(self) -> None:
        """Send requests that have not been sent yet."""
        if self._link is not None:
            self._link.flush()

    def _register(self, work: Work) -> None:
        request = work.request
        if self.place.rank not in self.ranks_of.get(request.process_set, ()):
            raise ValueError(
                f"{request.kind} '{request.name}': rank {self.place.rank} is not in process set "
                f"{request.process_set}"
            )
        if request.key in self._works:
            raise DuplicateNameError(
                f"'{request.name}' is in flight already: an operation of the same name has to end "
                "before it is requested again; give each a name of its own"
            )
        self._works[request.key] = work

    def _agreed(self, agreements: list[Agreement]) -> None:
        self.executor.put(agreements)

    # For the executor; see `Groups`

    def collectives(self, process_set: int) -> Collectives | None:
        """Return the collectives of a process set; None if this rank is not in it."""
        found = self._collectives.get(process_set)
        if found is None and self.place.rank in self.ranks_of.get(process_set, ()):
            found = self._collectives[process_set] = self._made(process_set)
        return found

    def _made(self, process_set: int) -> Collectives:
        ranks = self.ranks_of[process_set]
        store: Any = self._store or c10d.HashStore()
        index = ranks.index(self.place.rank)
        named = c10d.PrefixStore(f"set {process_set}", store)
        return Collectives(named, self._host or "127.0.0.1", index, len(ranks), self._why_lost)

    def _why_lost(self) -> str:
        return self._reason

    def ranks(self, process_set: int) -> Sequence[int]:
        """Return the ranks of a process set."""
        return self.ranks_of[process_set]

    def take(self, keys: Sequence[tuple[int, str]]) -> list[Work | None] | None:
        """Return the works with these keys; None in place of one if this rank has joined.

        Return None instead of a list if all works have failed: zeros in their place would be wrong.
        """
        with self._lock:
            if self._reason:
                return None
            works = [self._works.pop(key, None) for key in keys]
            self._executing = [work for work in works if work is not None]
            return works

    def add(self, number: int, ranks: Sequence[int]) -> None:
        """Create a process set."""
        self.ranks_of[number] = list(ranks)

    def remove(self, number: int) -> None:
        """Remove a process set."""
        self.ranks_of.pop(number, None)
        self._collectives.pop(number, None)
