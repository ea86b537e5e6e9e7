import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
import zmq
from stranger import frame, join

from flambeau.errors import MessagingError, ProtocolError, RequestTimeoutError
from flambeau.messaging import Client, Codec, Server, new_secret
from flambeau.messaging import client as client_module
from flambeau.messaging.frames import MAX_HEADER_BYTES
from flambeau.messaging.transport import LEND_BYTES

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 10.0
A_MOMENT = 0.1


class Note(msgspec.Struct, frozen=True, tag=True):
    text: str


CODEC: Codec[Note] = Codec(Note)


@pytest.fixture
def server() -> Iterator[Server[Note]]:
    server = Server(CODEC, SECRET, HOST)
    yield server
    server.close()


@pytest.fixture
def client(server: Server[Note]) -> Iterator[Client[Note]]:
    client = Client(CODEC, SECRET, server.address)
    yield client
    client.close()


def test_a_message_reaches_the_server_and_its_answer_the_sender(
    server: Server[Note], client: Client[Note]
) -> None:
    client.send(Note("hello"), [b"raw"])
    envelope = server.receive(SOON)
    assert envelope is not None
    assert (envelope.message, list(envelope.buffers)) == (Note("hello"), [b"raw"])
    server.send(envelope.peer, Note("welcome"))
    assert client.receive(SOON) == (Note("welcome"), [])


def test_answers_go_to_the_peer_that_asked(server: Server[Note], client: Client[Note]) -> None:
    other = Client(CODEC, SECRET, server.address)
    for sender, name in ((client, "one"), (other, "two")):
        sender.send(Note(name))
    for _ in range(2):
        envelope = server.receive(SOON)
        assert envelope is not None
        server.send(envelope.peer, envelope.message)
    assert client.receive(SOON) == (Note("one"), [])
    assert other.receive(SOON) == (Note("two"), [])
    other.close()


def test_messages_of_one_peer_keep_their_order(server: Server[Note], client: Client[Note]) -> None:
    for number in range(50):
        client.send(Note(str(number)))
    received = [server.receive(SOON) for _ in range(50)]
    assert [e.message.text for e in received if e is not None] == [str(n) for n in range(50)]


def test_a_client_with_a_wrong_secret_gets_no_service(
    server: Server[Note], client: Client[Note]
) -> None:
    intruder = Client(CODEC, new_secret(), server.address)
    intruder.send(Note("let me in"))
    client.send(Note("hello"))
    envelope = server.receive(SOON)
    assert envelope is not None
    assert envelope.message == Note("hello")
    assert server.receive(A_MOMENT) is None
    assert intruder.receive(0) is None
    intruder.close()


def test_malformed_messages_are_counted_and_do_not_stop_the_server(
    server: Server[Note], client: Client[Note]
) -> None:
    client.socket.send_multipart([b"GET / HTTP/1.1"])
    client.socket.send_multipart([b"FLB\x07"])
    client.send(Note("still there?"))
    received = [server.receive(SOON) for _ in range(3)]
    assert received[:2] == [None, None]
    assert received[2] is not None
    assert received[2].message == Note("still there?")
    assert sum(server.refused.values()) == 2
    assert server.refused["not a Flambeau message"] == 1


def test_without_messages_receive_gives_up_after_its_timeout(
    server: Server[Note], client: Client[Note]
) -> None:
    assert server.receive(0) is None
    assert client.receive(0) is None


def test_a_message_to_a_peer_that_is_gone_is_not_sent(server: Server[Note]) -> None:
    assert not server.send(b"nobody", Note("hello?"))
    assert server.receive(0) is None


def test_a_peer_that_takes_nothing_stops_neither_the_server_nor_others() -> None:
    server = Server(CODEC, SECRET, HOST, high_water=2)
    hello = CODEC.encode(Note("hello"))[0].tobytes()
    with join(server.address, SECRET, frame(hello)):
        stuck = server.receive(SOON)
        assert stuck is not None
        # Until its queue and the buffers of the connection are full.
        sent = [server.send(stuck.peer, Note("take this"), [bytes(2**20)]) for _ in range(100)]
        assert not all(sent)
        client = Client(CODEC, SECRET, server.address)
        client.send(Note("and me?"))
        envelope = server.receive(SOON)
        assert envelope is not None
        assert server.send(envelope.peer, Note("of course"))
        assert client.receive(SOON) == (Note("of course"), [])
        client.close()
    server.close()


@pytest.mark.parametrize("size", [0, 1, 1000, LEND_BYTES - 8, LEND_BYTES, 4 * LEND_BYTES])
def test_arrays_arrive_whole_and_are_the_receivers_to_change(
    server: Server[Note], client: Client[Note], size: int
) -> None:
    values = np.arange(size, dtype=np.uint8).reshape(-1, 1)
    client.send(Note("array"), [values, values.astype(np.float64)])
    envelope = server.receive(SOON)
    assert envelope is not None
    first, second = envelope.buffers
    assert np.array_equal(np.frombuffer(first, np.uint8), values[:, 0])
    received = np.frombuffer(second, np.float64)
    received += 1
    assert np.array_equal(received, values[:, 0] + 1.0)


def test_what_was_received_outlives_the_connection(server: Server[Note]) -> None:
    client = Client(CODEC, SECRET, server.address)
    client.send(Note("a"), [b"x" * LEND_BYTES, b"small"])
    envelope = server.receive(SOON)
    client.close()
    assert envelope is not None
    assert list(envelope.buffers) == [b"x" * LEND_BYTES, b"small"]


def test_what_was_sent_before_closing_arrives(server: Server[Note]) -> None:
    client = Client(CODEC, SECRET, server.address)
    for number in range(20):
        client.send(Note(str(number)), [bytes(2**19)])
    client.close()
    received = [server.receive(SOON) for _ in range(20)]
    assert [e.message.text for e in received if e is not None] == [str(n) for n in range(20)]


def test_frames_may_be_as_long_as_both_sides_allow() -> None:
    most = 10 * 2**20
    server = Server(CODEC, SECRET, HOST, max_bytes=most)
    client = Client(CODEC, SECRET, server.address, max_bytes=most)
    client.send(Note("large"), [bytes(most)])
    envelope = server.receive(SOON)
    assert envelope is not None
    assert len(envelope.buffers[0]) == most
    client.close()
    server.close()


def test_a_frame_that_is_too_long_is_named_where_it_is_sent(
    server: Server[Note], client: Client[Note]
) -> None:
    too_long = bytes(MAX_HEADER_BYTES + 1)
    with pytest.raises(ProtocolError, match=f"max_bytes={MAX_HEADER_BYTES}"):
        client.send(Note("large"), [too_long])
    with pytest.raises(ProtocolError, match=f"max_bytes={MAX_HEADER_BYTES}"):
        server.send(b"anybody", Note("large"), [too_long])


def test_a_server_can_be_waited_for_with_others(server: Server[Note], client: Client[Note]) -> None:
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    client.send(Note("hello"))
    assert poller.poll(SOON * 1000) == [(server.socket, zmq.POLLIN)]
    envelope = server.receive(0)
    assert envelope is not None
    assert envelope.message == Note("hello")


def test_a_client_knows_when_its_server_is_gone(server: Server[Note]) -> None:
    doomed = Server(CODEC, SECRET, HOST)
    client = Client(CODEC, SECRET, doomed.address)
    client.send(Note("hello"))
    assert doomed.receive(SOON) is not None
    assert client.problem is None
    doomed.close()
    _wait_for_problem(client)
    assert client.problem == f"{client.address} ended the connection"
    assert not _send_until_it_fails(client)
    client.close()


def test_a_client_knows_that_nobody_is_there() -> None:
    gone = Server(CODEC, SECRET, HOST)
    gone.close()
    client = Client(CODEC, SECRET, gone.address)
    _wait_for_problem(client)
    assert client.problem == f"{client.address} cannot be reached"
    client.close()


def test_a_client_knows_that_it_was_refused(server: Server[Note]) -> None:
    client = Client(CODEC, new_secret(), server.address)
    _wait_for_problem(client)
    assert client.problem is not None
    assert "its secret is not that of this job" in client.problem
    client.close()


def test_a_client_does_not_wait_forever_for_a_server_that_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "SEND_SECONDS", 0.2)
    server = Server(CODEC, SECRET, HOST, high_water=2)
    client = Client(CODEC, SECRET, server.address)
    with pytest.raises(RequestTimeoutError, match=f"{client.address} took no message"):
        _send_until_it_fails(client)
    client.close(linger=0)
    server.close()


SERVER_PROCESS = """
import sys
from test_server_client import CODEC, HOST, Server
server = Server(CODEC, bytes.fromhex(sys.argv[1]), HOST)
print(server.address, flush=True)
while True:
    envelope = server.receive(1)
    if envelope is not None:
        server.send(envelope.peer, envelope.message)
"""


def test_a_server_that_is_stopped_is_a_problem_for_those_who_care() -> None:
    command = [sys.executable, "-c", SERVER_PROCESS, SECRET.hex()]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=paths) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        watching = Client(CODEC, SECRET, address, silence_seconds=0.4)
        patient = Client(CODEC, SECRET, address)
        for client in (watching, patient):
            client.send(Note("hello"))
            assert client.receive(SOON) is not None
        process.send_signal(signal.SIGSTOP)
        _wait_for_problem(watching)
        assert watching.problem == f"{address} ended the connection"
        assert patient.problem is None
        process.kill()
    for client in (watching, patient):
        client.close(linger=0)


def _wait_for_problem(client: Client[Note]) -> None:
    for _ in range(200):
        if client.problem:
            return
        assert client.receive(0.05) is None


def _send_until_it_fails(client: Client[Note]) -> bool:
    large = bytes(2**18)
    return all(client.send(Note("is anybody there?"), [large]) for _ in range(20_000))


def test_a_port_in_use_is_named(server: Server[Note]) -> None:
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(MessagingError, match=rf"cannot listen on {HOST}:{port}"):
        Server(CODEC, SECRET, HOST, port)


def test_an_address_of_another_machine_is_told_from_a_port_in_use() -> None:
    with pytest.raises(
        MessagingError, match=r"on 192\.0\.2\.77:any port: .*no such address.*host="
    ):
        Server(CODEC, SECRET, "192.0.2.77")


def test_after_close_the_port_is_free() -> None:
    first = Server(CODEC, SECRET, HOST)
    port = int(first.address.rsplit(":", 1)[1])
    first.close()
    Server(CODEC, SECRET, HOST, port).close()


def test_closing_twice_is_closing_once(server: Server[Note], client: Client[Note]) -> None:
    for _ in range(2):
        client.close()
        server.close()


def test_the_server_listens_only_where_it_was_told(server: Server[Note]) -> None:
    assert server.address.startswith(f"tcp://{HOST}:")
