from collections.abc import Iterator

import msgspec
import pytest

from flambeau.errors import MessagingError
from flambeau.messaging import Client, Codec, Server, new_secret

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
    intruder.socket.linger = 0
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


def test_a_message_to_a_peer_that_is_gone_is_dropped(server: Server[Note]) -> None:
    server.send(b"nobody", Note("hello?"))
    assert server.receive(0) is None


def test_a_port_in_use_is_named(server: Server[Note]) -> None:
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(MessagingError, match=rf"cannot listen on {HOST}:{port}"):
        Server(CODEC, SECRET, HOST, port)


def test_after_close_the_port_is_free() -> None:
    first = Server(CODEC, SECRET, HOST)
    port = int(first.address.rsplit(":", 1)[1])
    first.close()
    Server(CODEC, SECRET, HOST, port).close()


def test_the_server_listens_only_where_it_was_told(server: Server[Note]) -> None:
    assert server.address.startswith(f"tcp://{HOST}:")
