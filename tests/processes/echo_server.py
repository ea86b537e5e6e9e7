"""A server process for tests: `python echo_server.py`, the secret on its first line of input.

Says its address, then answers every message with itself until its input ends, and then says what it
refused.
"""

import json
import sys
import time

import msgspec
import zmq

from flambeau.messaging import Codec, Server, transport


class Ask(msgspec.Struct, frozen=True, tag=True):
    number: int
    name: str = ""
    rows: list[int] = []


class Tell(msgspec.Struct, frozen=True, tag=True):
    values: dict[str, float]
    flag: bool = False


CODEC: Codec[Ask | Tell] = Codec(Ask | Tell)
MAX_BYTES = 2**20
HANDSHAKE_SECONDS = 2.0


def serve() -> None:
    secret = bytes.fromhex(sys.stdin.readline())
    said: list[str] = []
    server = Server(CODEC, secret, "127.0.0.1", max_bytes=MAX_BYTES, on_refusal=said.append)
    print(server.address, flush=True)
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    poller.register(sys.stdin, zmq.POLLIN)
    while sys.stdin.fileno() not in dict(poller.poll()):
        envelope = server.receive(0)
        if envelope is not None:
            server.send(envelope.peer, envelope.message, envelope.buffers)
    _wait_for_counts(server)
    server.close()
    print(json.dumps({"refused": server.refused, "said": said}))


def _wait_for_counts(server: "Server[Ask | Tell]") -> None:
    """Strangers who left are counted by a thread of its own, which may have some to do yet."""
    before = -1
    while before != (now := sum(server.refused.values())):
        before = now
        time.sleep(1)


if __name__ == "__main__":
    transport.HANDSHAKE_SECONDS = HANDSHAKE_SECONDS
    serve()
