"""Answers the transport's question "may this peer come in?" (ZAP, ZeroMQ RFC 27)."""

import threading

import zmq

from flambeau.messaging.tokens import TokenVerifier

ZAP_ENDPOINT = "inproc://zeromq.zap.01"


class Authenticator:
    """A thread that checks tokens during the handshake of one context's sockets."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], secret: bytes) -> None:
        self._verifier = TokenVerifier(secret)
        self._socket = context.socket(zmq.REP)
        self._socket.bind(ZAP_ENDPOINT)
        self._thread = threading.Thread(target=self._serve, name="flambeau-zap", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart()
            except zmq.ContextTerminated:
                break
            self._socket.send_multipart(self._answer(frames))
        self._socket.close(linger=0)

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        version, request = frames[0], frames[1]
        credentials = frames[6:]
        good = frames[5] == b"PLAIN" and len(credentials) == 2
        if good and self._verifier.accept(credentials[0], credentials[1]):
            return [version, request, b"200", b"OK", b"member", b""]
        return [version, request, b"400", b"no valid token", b"", b""]

    def join(self) -> None:
        """Wait for the thread; call while the context is being terminated."""
        self._thread.join(timeout=5)
