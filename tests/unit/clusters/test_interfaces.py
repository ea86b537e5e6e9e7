import socket
import sys

import pytest

from flambeau.clusters.interfaces import interface_of, local_address

LOOPBACK = "127.0.0.1"


def test_loopback_is_reached_from_loopback() -> None:
    assert local_address(LOOPBACK) == LOOPBACK


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_the_interface_of_loopback_has_its_address() -> None:
    name = interface_of(LOOPBACK)
    assert name in [known for _, known in socket.if_nameindex()]


def test_an_address_of_another_machine_has_no_interface_here() -> None:
    assert interface_of("192.0.2.1") is None
