"""At which addresses hosts and the driver reach each other."""

import socket

import pytest

from flambeau.clusters.ssh.host_process import own_address, reach
from flambeau.clusters.ssh.routes import driver_address

#: An address for documentation, which no machine has.
NOWHERE = "192.0.2.77"


def test_the_driver_is_where_most_hosts_see_it() -> None:
    assert driver_address(["127.0.0.2", "127.0.0.1", "127.0.0.1"]) == "127.0.0.1"


def test_an_address_of_a_router_is_not_the_drivers() -> None:
    assert driver_address([NOWHERE, NOWHERE]) is None
    assert driver_address([NOWHERE, "127.0.0.1"]) == "127.0.0.1"
    assert driver_address([]) is None
    assert driver_address([""]) is None


@pytest.mark.parametrize(
    ("server", "driver", "found"),
    [
        ("10.0.0.4", "10.0.0.1", "10.0.0.4"),
        ("10.0.0.4", None, "10.0.0.4"),
        ("127.0.0.3", "127.0.0.1", "127.0.0.3"),
        ("127.0.0.3", None, "127.0.0.3"),
        ("fd00::5", "127.0.0.1", "127.0.0.1"),
        ("", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_host_is_where_ssh_has_reached_it(server: str, driver: str | None, found: str) -> None:
    assert own_address(server, driver) == found


def test_connections_are_tried_at_once_and_failures_have_reasons() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            other = closed.getsockname()[1]
        places = [("127.0.0.1", port), ("127.0.0.1", other)]
        assert reach(places, 5.0) == [None, "Connection refused"]
    assert reach([], 1.0) == []
