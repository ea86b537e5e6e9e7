import os
import socket
from collections.abc import Iterator

import pytest

from flambeau.messaging.arrivals import UNKNOWN, Arrivals

HOST = "127.0.0.1"


@pytest.fixture
def accepted() -> Iterator[list[socket.socket]]:
    """The server's ends of two connections."""
    with socket.create_server((HOST, 0)) as listener:
        outer = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        inner = [listener.accept()[0] for _ in range(2)]
    yield inner
    for connection in outer + inner:
        connection.close()


def test_who_leaves_without_credentials_is_a_stranger(accepted: list[socket.socket]) -> None:
    arrivals = Arrivals()
    arrivals.came(accepted[0].fileno())
    assert arrivals.left(accepted[0].fileno()) == HOST


def test_who_showed_credentials_is_not(accepted: list[socket.socket]) -> None:
    arrivals = Arrivals()
    silent, member = (connection.fileno() for connection in accepted)
    arrivals.came(silent)
    arrivals.came(member)
    arrivals.showed_credentials(HOST)
    assert (arrivals.left(member), arrivals.left(silent)) == (None, HOST)


def test_credentials_from_elsewhere_change_nothing(accepted: list[socket.socket]) -> None:
    arrivals = Arrivals()
    arrivals.came(accepted[0].fileno())
    arrivals.showed_credentials("10.0.0.9")
    assert arrivals.left(accepted[0].fileno()) == HOST


def test_nothing_is_kept_of_those_who_left(accepted: list[socket.socket]) -> None:
    arrivals = Arrivals()
    for connection in accepted:
        arrivals.came(connection.fileno())
        arrivals.left(connection.fileno())
    assert len(arrivals) == 0


def test_a_descriptor_that_is_closed_or_something_else_by_now_has_no_address() -> None:
    arrivals = Arrivals()
    read, write = os.pipe()
    os.close(write)
    for descriptor in (read, write):
        arrivals.came(descriptor)
        assert arrivals.left(descriptor) == UNKNOWN
    os.close(read)


def test_credentials_of_a_connection_whose_address_was_gone_count_for_it() -> None:
    arrivals = Arrivals()
    read, write = os.pipe()
    arrivals.came(read)
    arrivals.showed_credentials(HOST)
    assert arrivals.left(read) is None
    os.close(read)
    os.close(write)
