"""The routes from hosts to the driver and to each other, tested before a job starts."""

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address

from flambeau.clusters.interfaces import local_address
from flambeau.clusters.local import LOOPBACK
from flambeau.clusters.ssh.connection import on_all
from flambeau.clusters.ssh.host_link import HostLink
from flambeau.clusters.ssh.host_messages import Listen, Listening, Reach, Reached, Unlisten
from flambeau.errors import ConfigError

#: How long a test connection may take.
TRY_SECONDS = 3.0
#: An address on no network, to which nothing is sent: the default route leads there.
_ELSEWHERE = "192.0.2.1"
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Routes:
    """Where the driver listens, which hosts reach it only through ssh, and where hosts are.

    `addresses` has, for each host, the address at which other hosts reach it; `reasons` has, for
    each host in `tunnelled`, why it cannot reach the driver directly.
    """

    driver: str
    addresses: Mapping[str, str]
    reasons: Mapping[str, str]

    @property
    def tunnelled(self) -> list[str]:
        """Hosts whose traffic with the driver goes through ssh."""
        return list(self.reasons)


def find_routes(
    links: Mapping[str, HostLink], *, given: str | None = None, tunnel: bool | None = None
) -> Routes:
    """Test how hosts reach the driver (at the address `given`, if any), and each other.

    `tunnel` sets whether traffic with the driver goes through ssh; None: only where it has to.
    """
    clients = [link.hello.client for link in links.values() if link.hello is not None]
    seen = given or driver_address(clients)
    driver = given or (None if tunnel else seen)
    if driver is None and tunnel is False:
        raise ConfigError(
            "hosts see ssh connections come from "
            f"{', '.join(sorted(set(clients)))}, which is no address of this machine, so they "
            "cannot reach it. Leave out tunnel=False, or give an address that they reach as host="
        )
    if given is not None and not _is_own(given):
        raise ConfigError(
            f"host={given}: this machine has no such IPv4 address. Leave it out, or give an "
            "address of this machine that hosts reach"
        )
    own = LOOPBACK if driver is None else driver
    with ExitStack() as stack:
        port = stack.enter_context(_listener(own)).getsockname()[1]
        places = on_all(links, lambda name: links[name].ask(Listen(seen), Listening))
        stack.callback(on_all, links, lambda name: links[name].send(Unlisten()))
        tried = on_all(links, lambda name: _reach(links[name], (own, port), places))
    refused = {name: reasons[0] for name, reasons in tried.items() if reasons[0] is not None}
    _require_peers(tried, places)
    if driver is None or tunnel:
        behind = "tunnel=True" if tunnel else "this machine has another address for them"
        refused = dict.fromkeys(links, behind)
    elif refused and tunnel is False:
        raise ConfigError(
            f"{_some([f'{name} ({reason})' for name, reason in refused.items()])} cannot connect "
            f"to this machine at {driver}. Leave out tunnel=False, or give an address that "
            "they reach as host="
        )
    if len(refused) == len(links):
        own = LOOPBACK  # no other machine has to reach it
    return Routes(own, {name: place.host for name, place in places.items()}, refused)


def driver_address(clients: Sequence[str]) -> str | None:
    """Return the address of this machine that most hosts see as the source of its connections.

    None if no host sees an address of this machine, since a router translates it. Hosts that see a
    loopback address are this machine.
    """
    found = Counter(client for client in clients if _is_own(client))
    outer = {client: count for client, count in found.items() if not _is_loopback(client)}
    if outer or found:
        return max(outer or found, key=lambda client: found[client])
    if any(":" in client for client in clients):  # by IPv6, which is not used here
        with suppress(OSError):
            return local_address(_ELSEWHERE)
    return None


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def _is_own(address: str) -> bool:
    """Return whether an address is an IPv4 address of this machine."""
    try:
        with _listener(address):
            return ip_address(address).version == 4
    except (OSError, ValueError):
        return False


def _listener(address: str) -> socket.socket:
    return socket.create_server((address, 0), backlog=1024)


def _reach(
    link: HostLink, driver: tuple[str, int], places: Mapping[str, Listening]
) -> list[str | None]:
    """Return why a host cannot reach the driver, then each host; None where it can."""
    tried = [driver, *((place.host, place.port) for place in places.values())]
    # The host tries several at once.
    seconds = TRY_SECONDS * (2 + len(tried) // 32)
    return link.ask(Reach(tried, TRY_SECONDS), Reached, seconds + TRY_SECONDS).reasons


def _require_peers(tried: Mapping[str, list[str | None]], places: Mapping[str, Listening]) -> None:
    failed = [
        f"{name} cannot connect to {other} at {places[other].host} ({reason})"
        for name, reasons in tried.items()
        for other, reason in zip(places, reasons[1:], strict=True)
        if reason is not None
    ]
    if failed:
        raise ConfigError(
            f"{_some(failed)}. Workers and servers on different hosts exchange data directly, on "
            "ports that they choose: allow TCP between the hosts (firewall, security group), or "
            "name them by addresses of a network that they share"
        )


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return ", ".join(texts[:_MOST_SHOWN]) + (f", and {more} more" if more > 0 else "")
