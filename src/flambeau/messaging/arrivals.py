"""Connections that have not shown credentials yet."""

import socket
from typing import final

UNKNOWN = "an address already gone"


@final
class Arrivals:
    """Tracker of connections that end without having shown credentials.

    The transport identifies a connection by its descriptor when it opens and closes, but by its
    address when it shows credentials. If several connections have the same address, it is unknown
    which of them did; one may be taken for another, but the reported address is correct.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def came(self, descriptor: int) -> None:
        """Record that a connection was accepted."""
        self._waiting[descriptor] = _address(descriptor)

    def showed_credentials(self, address: str) -> None:
        """Stop tracking the latest connection from this address; silent ones are older."""
        latest = reversed(self._waiting.items())
        found = next((fd for fd, waiting in latest if waiting in (address, UNKNOWN)), None)
        if found is not None:
            del self._waiting[found]

    def left(self, descriptor: int) -> str | None:
        """Record that a connection ended; return its address if it never showed credentials."""
        return self._waiting.pop(descriptor, None)


def _address(descriptor: int) -> str:
    """Return the remote address; the transport may already have closed the connection."""
    try:
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            name = copy.getpeername()
    except OSError:
        return UNKNOWN
    return str(name[0]) if isinstance(name, tuple) else UNKNOWN
