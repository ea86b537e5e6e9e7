"""The controller: a thread of rank 0 in which all ranks agree on the next operations."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import final

from flambeau.compat.horovod.negotiation.messages import (
    Agreed,
    Alive,
    Begin,
    Closing,
    Goodbye,
    Hello,
    Idle,
    Leave,
    Lost,
    Refused,
    Said,
    Submit,
    Warn,
)
from flambeau.compat.horovod.negotiation.negotiator import Negotiator
from flambeau.coordination.rendezvous import Rendezvous, StoreRequest
from flambeau.errors import FlambeauError
from flambeau.messaging import Server
from flambeau.messaging.server import Envelope
from flambeau.version import __version__

TICK_SECONDS = 0.2
#: A rank that sends nothing for this long is lost: its host is gone, or its process is stopped.
SILENCE_SECONDS = 60.0
#: Seconds that agreements wait for more while ranks still execute earlier ones.
GATHER_SECONDS = 0.0005
#: Seconds that the others have to finish the agreed operations when a rank shuts down.
CLOSING_SECONDS = 5.0
#: Seconds that connections stay open after the loss of a rank, so that others receive `Lost`.
SEE_OFF_SECONDS = 1.0


@final
class Controller:
    """The controller of one group of ranks, until one of them leaves or is lost."""

    def __init__(
        self,
        server: Server[Said],
        size: int,
        *,
        cache_capacity: int,
        stall_seconds: float,
        on_met: Callable[[], None],
        is_busy: Callable[[], bool],
    ) -> None:
        """`on_met` is called when all ranks have arrived; `is_busy` checks rank 0's executor."""
        self._server, self._size = server, size
        self._negotiator = Negotiator(size, cache_capacity)
        self._store = Rendezvous(server.send)
        self._stall_seconds, self._on_met, self._is_busy = stall_seconds, on_met, is_busy
        self._peers: dict[int, bytes] = {}
        self._hellos: dict[int, Hello] = {}
        self._heard: dict[bytes, float] = {}
        self._idle: set[int] = set()
        self._closing_since: float | None = None
        self._warned: set[str] = set()
        self._over = self._lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="hvd-controller", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` until all ranks have left, then stop the thread."""
        self._thread.join(seconds)
        self._stop.set()
        self._thread.join(1.0)

    def _serve(self) -> None:
        last_check = time.monotonic()
        try:
            while not (self._over or self._stop.is_set()):
                waits = self._negotiator.has_ready and self._is_busy()
                envelope = self._server.receive(GATHER_SECONDS if waits else TICK_SECONDS)
                while envelope is not None:
                    self._handle(envelope)
                    envelope = self._server.receive(0)
                if not self._is_busy() or waits:
                    self._flush()
                if time.monotonic() - last_check > TICK_SECONDS:
                    last_check = time.monotonic()
                    self._check(last_check)
        finally:
            self._see_off()
            self._server.close()

    def _see_off(self) -> None:
        """Read what ranks still send: a connection closed with unread data would drop `Lost`."""
        deadline = time.monotonic() + SEE_OFF_SECONDS
        while self._lost and self._peers and time.monotonic() < deadline:
            self._server.receive(SEE_OFF_SECONDS / 20)
            alive = Alive()
            self._peers = {r: p for r, p in self._peers.items() if self._server.send(p, alive)}

    def _handle(self, envelope: Envelope[Said]) -> None:
        peer, message = envelope.peer, envelope.message
        self._heard[peer] = time.monotonic()
        match message:
            case Hello():
                self._arrive(peer, message)
            case Submit():
                self._submit(peer, message)
            case StoreRequest():
                self._store.handle(peer, message, envelope.buffers)
            case Leave():
                self._close(f"rank {message.rank} has shut down")
            case Idle():
                self._idle.add(message.rank)
                self._end_if_idle()

    def _arrive(self, peer: bytes, hello: Hello) -> None:
        problem = self._problem_of(hello)
        if problem is not None:
            self._server.send(peer, Refused(problem))
            return
        self._peers[hello.rank], self._hellos[hello.rank] = peer, hello
        if len(self._peers) == self._size:
            self._on_met()
            self._send_all(Begin([self._hellos[rank].machine for rank in range(self._size)]))

    def _problem_of(self, hello: Hello) -> str | None:
        """Return why a rank cannot take part: empty if it may try again later."""
        if len(self._peers) == self._size:
            return ""
        if hello.version != __version__:
            return (
                f"rank {hello.rank} has Flambeau {hello.version} and rank 0 {__version__}: "
                "install the same version"
            )
        if hello.size != self._size:
            return f"rank {hello.rank} expects {hello.size} ranks and rank 0 {self._size}"
        # A process that retries has a new connection.
        return None

    def _submit(self, peer: bytes, message: Submit) -> None:
        rank = next((rank for rank, each in self._peers.items() if each == peer), None)
        if rank is None or self._closing_since is not None:
            return
        try:
            now = time.monotonic()
            self._negotiator.submit(rank, message.requests, now)
            for process_set, numbers in message.repeats.items():
                self._negotiator.repeat(rank, process_set, numbers, now)
        except FlambeauError as error:
            self._lose(f"the controller cannot continue: {error}")

    def _flush(self) -> None:
        agreed = self._negotiator.take()
        if agreed is not None:
            self._send_all(agreed)

    def _send_all(self, message: Agreed | Begin | Closing | Goodbye | Lost | Alive | Warn) -> None:
        # Rank 0 last: its other threads may then hold the GIL, which this thread needs.
        ranks = sorted(self._peers, reverse=True)
        gone = [rank for rank in ranks if not self._server.send(self._peers[rank], message)]
        if gone:
            self._leave_behind(gone, "its process has ended")

    def _check(self, now: float) -> None:
        self._send_all(Alive())
        silent = [
            rank
            for rank, peer in self._peers.items()
            if now - self._heard.get(peer, now) > SILENCE_SECONDS
        ]
        if silent:
            self._leave_behind(silent, f"it has sent nothing for {SILENCE_SECONDS:.0f} s")
        self._negotiator.check_crossed(now)
        if self._stall_seconds:
            self._warn(self._negotiator.stalled(now, self._stall_seconds))
        closing = self._closing_since
        if closing is not None and now - closing > CLOSING_SECONDS:
            self._end()

    def _warn(self, stalled: Sequence[tuple[str, list[int]]]) -> None:
        fresh = [(name, ranks) for name, ranks in stalled if name not in self._warned]
        self._warned = {name for name, _ in stalled}
        if fresh:
            lines = [f"  {name}: missing on ranks {ranks}" for name, ranks in fresh]
            head = (
                f"These operations have waited for more than {self._stall_seconds:.0f} s, because "
                "not all ranks have requested them. Every rank must call the same operations:"
            )
            self._send_all(Warn("\n".join([head, *lines])))

    # Shutdown and loss

    def _leave_behind(self, gone: Sequence[int], why: str) -> None:
        for rank in gone:
            self._peers.pop(rank, None)
        if len(self._hellos) < self._size:  # a process that retries has a new connection
            return
        if self._closing_since is not None:
            self._end_if_idle()
        else:
            ranks = ", ".join(map(str, sorted(gone)))
            self._lose(f"rank {ranks} is lost: {why}")

    def _lose(self, reason: str) -> None:
        self._over = self._lost = True
        self._send_all(Lost(reason))

    def _close(self, reason: str) -> None:
        if self._closing_since is None and not self._over:
            self._flush()
            self._closing_since = time.monotonic()
            self._send_all(Closing(reason))

    def _end_if_idle(self) -> None:
        if self._closing_since is not None and self._idle >= set(self._peers):
            self._end()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._send_all(Goodbye())
