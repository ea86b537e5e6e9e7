"""A rank's connection to the controller: a thread that sends requests, receives agreements."""

import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import zmq

from flambeau.compat.horovod.negotiation.messages import (
    Agreed,
    Agreement,
    Alive,
    Closing,
    Goodbye,
    Idle,
    Leave,
    Lost,
    Request,
    Said,
    Submit,
    Warn,
)
from flambeau.coordination.rendezvous import StoreReply
from flambeau.messaging import Client

_log = logging.getLogger("flambeau.horovod")
TICK_SECONDS = 0.25
ALIVE_SECONDS = 5.0
#: Handles a reply of the store and its values.
ReplyHandler = Callable[[StoreReply, Sequence[Any]], None]


@final
class Link:
    """The connection of one rank. Any thread may call `submit`, `send` and `leave`."""

    #: Generation of the store's keys; constant, as every group of ranks has its own store.
    generation = 0

    def __init__(
        self,
        client: Client[Said],
        rank: int,
        *,
        on_agreed: Callable[[list[Agreement]], None],
        on_closing: Callable[[Callable[[], None]], None],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_closing` receives a function to call when all agreed operations are executed."""
        self._client, self._rank = client, rank
        self._on_agreed, self._on_closing, self._on_end = on_agreed, on_closing, on_end
        self._outbox: collections.deque[Request | tuple[Said, Sequence[Any]]] = collections.deque()
        self._replies: ReplyHandler | None = None
        #: Cached agreements by number, and this rank's request and the number by key.
        self._cache: dict[int, Agreement] = {}
        self._own: dict[tuple[int, str], tuple[Request, int]] = {}
        self._sent: dict[tuple[int, str], Request] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._woken = False
        self._ending = ""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hvd-link", daemon=True)

    def start(self) -> None:
        """Start to send and receive."""
        self._thread.start()

    @property
    def spec(self) -> "Link":
        """The object from which the store reads its generation."""
        return self

    def on(self, kind: type, handler: ReplyHandler) -> None:
        """Set the handler for replies of the store."""
        assert kind is StoreReply
        self._replies = handler

    def send(self, message: Said, buffers: Sequence[Any] = ()) -> None:
        """Queue a message."""
        self._outbox.append((message, buffers))
        self.wake()

    def submit(self, requests: Sequence[Request], *, wake: bool = True) -> None:
        """Queue requests; without `wake` they are sent with the next ones."""
        self._outbox.extend(requests)
        if wake:
            self.wake()

    def flush(self) -> None:
        """Send the queued requests now, if there are any."""
        if self._outbox:
            self.wake()

    def wake(self) -> None:
        """Wake the thread to send what is queued."""
        if not self._woken:  # the thread resets it before it reads the queue
            self._woken = True
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self._wake_write, b"x")

    def leave(self, seconds: float) -> None:
        """Let all ranks finish the agreed operations, then close the connection."""
        if not self.ended.is_set():
            self.send(Leave(self._rank))
        self.ended.wait(seconds)
        self._ending = self._ending or "Horovod has been shut down"
        self.ended.set()
        self.wake()
        self._thread.join(seconds)

    # In the link's thread

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._client.socket, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        reported = time.monotonic()
        try:
            while not self.ended.is_set():
                ready = dict(poller.poll(int(TICK_SECONDS * 1000)))
                if self._wake_read in ready:
                    os.read(self._wake_read, 4096)
                self._receive_all()
                self._send_all()
                if time.monotonic() - reported > ALIVE_SECONDS:
                    reported = time.monotonic()
                    self._client.send(Alive())
                if not ready and self._client.problem is not None:
                    self._end(f"rank 0 is lost: {self._client.problem}")
        finally:
            self._end("the connection to rank 0 has ended")
            self._client.close(linger=1.0)
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _send_all(self) -> None:
        requests: list[Request] = []
        repeats: dict[int, list[int]] = {}
        self._woken = False
        while self._outbox:
            item = self._outbox.popleft()
            if not isinstance(item, Request):
                self._client.send(*item)
                continue
            # An agreement on the same request is repeated by its number.
            known, number = self._own.get(item.key, (None, 0))
            if known == item:
                repeats.setdefault(item.process_set, []).append(number)
            else:
                self._sent[item.key] = item
                requests.append(item)
        if requests or repeats:
            self._client.send(Submit(requests, repeats))

    def _receive_all(self) -> None:
        received = self._client.receive(0)
        while received is not None and not self.ended.is_set():
            self._handle(*received)
            received = self._client.receive(0)

    def _handle(self, message: Said, buffers: Sequence[Any]) -> None:
        match message:
            case Agreed():
                self._on_agreed([self._agreement(item) for item in message.items])
                for number in message.dropped:
                    self._forget(number)
            case StoreReply() if self._replies is not None:
                self._replies(message, buffers)
            case Warn():
                _log.warning(message.text)
            case Closing():
                self._ending = message.reason
                self._on_closing(lambda: self.send(Idle(self._rank)))
            case Lost():
                self._end(message.reason)
            case Goodbye():
                self._end(self._ending)

    def _agreement(self, item: Agreement | int) -> Agreement:
        if isinstance(item, int):
            return self._cache[item]
        own = self._sent.pop(item.request.key, None)
        if item.cache_id >= 0:
            self._cache[item.cache_id] = item
            if own is None:  # repeated an older one, while another rank has changed its request
                own = self._own[item.request.key][0] if item.request.key in self._own else None
            if own is not None:
                self._own[item.request.key] = own, item.cache_id
        return item

    def _forget(self, number: int) -> None:
        agreement = self._cache.pop(number, None)
        if agreement is not None:
            key = agreement.request.key
            if key in self._own and self._own[key][1] == number:
                del self._own[key]

    def _end(self, reason: str) -> None:
        if not self.ended.is_set():
            self.ended.set()
            self._on_end(reason)
