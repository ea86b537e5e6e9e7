from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from zmtp_proxy import ZmtpProxy

from flambeau.messaging import Client, Codec, Server, new_secret

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 10.0
A_MOMENT = 0.2


class Note(msgspec.Struct, frozen=True, tag=True):
    number: int


CODEC: Codec[Note] = Codec(Note)


@contextmanager
def connected(**faults: Any) -> Iterator[tuple[Server[Note], Client[Note], ZmtpProxy]]:
    """A server and a client that talk through a proxy."""
    server = Server(CODEC, SECRET, HOST)
    with ZmtpProxy(server.address, seed=7, **faults) as proxy:
        client = Client(CODEC, SECRET, proxy.address)
        yield server, client, proxy
        client.close(linger=0)
    server.close()


def received_by(server: Server[Note], wait: float = A_MOMENT) -> list[int]:
    numbers = []
    while (envelope := server.receive(wait)) is not None:
        numbers.append(envelope.message.number)
    return numbers


def test_without_faults_everything_passes_both_ways() -> None:
    with connected() as (server, client, proxy):
        for number in range(50):
            client.send(Note(number), [b"x" * 100 * number, b""])
            envelope = server.receive(SOON)
            assert envelope is not None
            server.send(envelope.peer, envelope.message, envelope.buffers)
            assert client.receive(SOON) == (Note(number), [b"x" * 100 * number, b""])
        assert proxy.counts == {"connections": 1, "passed": 100}


def test_duplicated_messages_arrive_twice() -> None:
    with connected(duplicate=1.0) as (server, client, proxy):
        for number in range(3):
            client.send(Note(number), [b"buffer"])
        assert received_by(server) == [0, 0, 1, 1, 2, 2]
        assert proxy.counts["duplicated"] == 3


def test_dropped_messages_do_not_arrive_and_the_connection_stays() -> None:
    with connected(drop=1.0) as (server, client, proxy):
        client.send(Note(1), [b"buffer"])
        assert received_by(server) == []
        assert client.problem is None
        assert proxy.counts["dropped"] == 1


def test_delayed_messages_arrive_in_order() -> None:
    with connected(delay=(0.0, 0.02)) as (server, client, _):
        for number in range(10):
            client.send(Note(number))
        assert received_by(server) == list(range(10))


def test_a_cut_ends_the_connection_and_what_was_cut_is_never_seen() -> None:
    with connected(cut=1.0) as (server, client, proxy):
        client.send(Note(1), [bytes(100_000)])
        while client.problem is None:
            assert server.receive(0.05) is None
        assert client.problem == f"{proxy.address} ended the connection"
        assert proxy.counts["cut"] == 1
        assert not server.refused


def test_each_connection_has_chances_of_its_own() -> None:
    with connected(cut=0.5) as (server, first, proxy):
        first.close()
        seen = set()
        for _ in range(8):
            client = Client(CODEC, SECRET, proxy.address)
            for number in range(5):
                client.send(Note(number))
            seen.add(len(received_by(server, 0.1)))
            client.close(linger=0)
        assert len(seen) > 1


@pytest.mark.parametrize("fault", ["drop", "duplicate"])
def test_the_seed_decides_which_messages_are_hit(fault: str) -> None:
    seen = []
    for _ in range(2):
        with connected(**{fault: 0.5}) as (server, client, _):
            for number in range(30):
                client.send(Note(number))
            seen.append(received_by(server))
    assert seen[0] == seen[1]
    assert seen[0] != list(range(30))
