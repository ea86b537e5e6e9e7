"""Authentication of peers for the transport (ZAP, ZeroMQ RFC 27)."""

import threading
from typing import final

import zmq
from zmq.utils.monitor import parse_monitor_message

from flambeau.messaging.arrivals import Arrivals
from flambeau.messaging.credentials import Credentials
from flambeau.messaging.refusals import Refusals
from flambeau.messaging.transport import Socket

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
MONITOR_ENDPOINT = "inproc://flambeau.monitor"
#: With more unread events than this, the transport would wait for the thread that reads them.
_MOST_EVENTS = 100_000


@final
class Authenticator:
    """Thread that checks credentials during the handshake and detects peers that show none."""

    def __init__(self, server: Socket, credentials: Credentials, refusals: Refusals) -> None:
        self._credentials, self._refusals = credentials, refusals
        self._arrivals = Arrivals()
        self._questions = server.context.socket(zmq.REP)
        self._questions.bind(ZAP_ENDPOINT)
        self._events = server.context.socket(zmq.PAIR)
        self._events.rcvhwm = _MOST_EVENTS
        server.monitor(MONITOR_ENDPOINT, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._events.connect(MONITOR_ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="flambeau-zap", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread; call it while the context is being terminated."""
        self._thread.join(timeout=5)

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._questions, zmq.POLLIN)
        poller.register(self._events, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll())
                # Events are read first, since a connection's arrival is reported before its
                # credentials.
                self._read_events()
                if self._questions in ready:
                    self._questions.send_multipart(self._answer(self._questions.recv_multipart()))
        except zmq.ContextTerminated:
            self._questions.close(linger=0)
            self._events.close(linger=0)

    def _read_events(self) -> None:
        while self._events.poll(0):
            event = parse_monitor_message(self._events.recv_multipart())
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._arrivals.came(int(event["value"]))
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                stranger = self._arrivals.left(int(event["value"]))
                if stranger is not None:
                    self._refusals.add(stranger, "no completed handshake")

    def _answer(self, question: list[bytes]) -> list[bytes]:
        version, request, _domain, address, _routing_id, mechanism, *shown = question
        self._arrivals.showed_credentials(address.decode())
        if self._credentials.admit(mechanism, shown):
            return [version, request, b"200", b"OK", b"member", b""]
        self._refusals.add(address.decode(), self._credentials.refusal)
        return [version, request, b"400", self._credentials.refusal.encode(), b"", b""]
