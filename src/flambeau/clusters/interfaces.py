"""Network interfaces of this machine and their addresses."""

import fcntl
import socket
import struct
import sys

_SIOCGIFADDR = 0x8915


def local_address(host: str) -> str:
    """Return the address of this machine that routes to `host`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # connecting a datagram socket sends nothing
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has this address; None if it cannot be determined."""
    if sys.platform != "linux":
        return None
    if address.startswith("127."):
        address = "127.0.0.1"  # one interface has all of these
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def address_of(interface: str) -> str | None:
    """Return the address of an interface; None if it has none or it cannot be determined."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def host_of(address: str) -> str:
    """Return the host in an address such as `tcp://127.0.0.1:4000`."""
    return address.removeprefix("tcp://").rsplit(":", 1)[0]
