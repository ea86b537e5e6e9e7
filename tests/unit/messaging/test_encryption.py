"""With `encrypt`, what is said cannot be read, and only the job's own can say anything."""

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from flambeau.messaging import Client, Codec, Server, new_secret, transport
from flambeau.messaging.credentials import Keys, Tokens

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 10.0
MARKER = b"a marker in plain words"


class Note(msgspec.Struct, frozen=True, tag=True):
    text: str


CODEC: Codec[Note] = Codec(Note)


class Relay:
    """Passes one connection on to a server, and records every byte of both directions."""

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("tcp://").split(":")
        self._listener = socket.create_server((HOST, 0))
        self._outer = (host, int(port))
        self.address = f"tcp://{HOST}:{self._listener.getsockname()[1]}"
        self.recorded = {"there": b"", "back": b""}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        inner, _ = self._listener.accept()
        with self._listener, inner, socket.create_connection(self._outer) as outer:
            back = threading.Thread(target=self._pump, args=(outer, inner, "back"))
            back.start()
            self._pump(inner, outer, "there")
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        while data := source.recv(65536):
            self.recorded[direction] += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def join(self) -> None:
        self._thread.join(SOON)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server[Note]]:
    monkeypatch.setattr(transport, "HANDSHAKE_SECONDS", 1.0)
    server = Server(CODEC, SECRET, HOST, encrypt=True, max_bytes=1_000_000)
    yield server
    server.close()


def test_both_directions_are_readable_on_the_wire_only_without_encryption() -> None:
    for encrypt in (False, True):
        server = Server(CODEC, SECRET, HOST, encrypt=encrypt)
        relay = Relay(server.address)
        client = Client(CODEC, SECRET, relay.address, encrypt=encrypt)
        client.send(Note(MARKER.decode()), [MARKER * 1000])
        envelope = server.receive(SOON)
        assert envelope is not None
        server.send(envelope.peer, envelope.message, envelope.buffers)
        assert client.receive(SOON) == (Note(MARKER.decode()), [MARKER * 1000])
        client.close()
        relay.join()
        server.close()
        assert [MARKER in seen for seen in relay.recorded.values()] == [not encrypt] * 2
        assert all(len(seen) > 1000 * len(MARKER) for seen in relay.recorded.values())


def test_the_largest_frame_fits_although_encryption_adds_to_it(server: Server[Note]) -> None:
    client = Client(CODEC, SECRET, server.address, encrypt=True, max_bytes=1_000_000)
    client.send(Note("large"), [bytes(1_000_000)])
    envelope = server.receive(SOON)
    assert envelope is not None
    assert len(envelope.buffers[0]) == 1_000_000
    client.close()


def test_keys_of_another_secret_are_refused(server: Server[Note]) -> None:
    assert _problem_of(Client(CODEC, new_secret(), server.address, encrypt=True), server)


def test_a_server_key_alone_does_not_let_anybody_in(
    server: Server[Note], monkeypatch: pytest.MonkeyPatch
) -> None:
    show = Keys.show

    def show_anothers_key(keys: Keys, client: transport.Socket) -> None:
        show(keys, client)
        other = Keys(new_secret())
        client.curve_publickey, client.curve_secretkey = other._client_public, other._client_secret

    monkeypatch.setattr(Keys, "show", show_anothers_key)
    stranger = Client(CODEC, SECRET, server.address, encrypt=True)
    assert "its secret is not that of this job" in _problem_of(stranger, server)
    assert server.refused == {"not a key of this job": 1}


def test_a_client_without_encryption_is_refused_by_a_server_with(server: Server[Note]) -> None:
    assert "`encrypt`" in _problem_of(Client(CODEC, SECRET, server.address), server)


def test_a_client_with_encryption_is_refused_by_a_server_without() -> None:
    server = Server(CODEC, SECRET, HOST)
    problem = _problem_of(Client(CODEC, SECRET, server.address, encrypt=True), server)
    server.close()
    assert "`encrypt`" in problem


def test_a_client_without_credentials_is_refused(
    server: Server[Note], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokens, "show", lambda *_: None)
    assert _problem_of(Client(CODEC, SECRET, server.address), server)


def test_keys_depend_on_the_secret_and_differ_by_side() -> None:
    one, same, other = Keys(SECRET), Keys(SECRET), Keys(new_secret())
    assert vars(one) == vars(same)
    assert len({*vars(one).values(), *vars(other).values()}) == 8


def _problem_of(client: Client[Note], server: Server[Note]) -> str:
    """Why the client is not served."""
    for _ in range(200):
        assert server.receive(0.05) is None
        if client.problem:
            break
    assert client.receive(0) is None
    problem = client.problem
    client.close()
    assert problem is not None
    assert problem.startswith(client.address)
    return problem
