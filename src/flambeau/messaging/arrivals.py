"""Connections that have not shown credentials yet."""

import socket
from typing import final

UNKNOWN = "an address already gone"


@final
class Arrivals:
    """Tells which connections end as strangers.

    The transport names a connection by its descriptor when it comes and goes, but by its address
    when it shows credentials. Of several connections from one address it cannot be known which one
    did; then one of them stands for another, and it is still the right address that is named.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def came(self, descriptor: int) -> None:
        """A connection was accepted."""
        self._waiting[descriptor] = _address(descriptor)

    def showed_credentials(self, address: str) -> None:
        """The latest connection from there is no longer waiting; silent ones are older."""
        latest = reversed(self._waiting.items())
        found = next((fd for fd, waiting in latest if waiting in (address, UNKNOWN)), None)
        if found is not None:
            del self._waiting[found]

    def left(self, descriptor: int) -> str | None:
        """A connection ended; its address if it never showed credentials."""
        return self._waiting.pop(descriptor, None)


def _address(descriptor: int) -> str:
    """The other end's address; the transport may have closed the connection meanwhile."""
    try:
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            name = copy.getpeername()
    except OSError:
        return UNKNOWN
    return str(name[0]) if isinstance(name, tuple) else UNKNOWN
