"""Checks before a Ray cluster is joined: Ray itself retries for minutes, or reports nothing."""

import socket
import warnings
from collections.abc import Mapping
from typing import Any

import ray
from ray.runtime_env import RuntimeEnv

from flambeau.config.settings import close_to
from flambeau.errors import ConfigError

PROBE_SECONDS = 5.0


def require_listener(address: str) -> None:
    """Raise an error if nothing listens at HOST:PORT. Other forms are left for Ray to check."""
    place = host_and_port(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=PROBE_SECONDS).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray can be reached at {address!r}: {error}. `ray start --head` says at which "
            "address others join it (by default port 6379; 10001 is for ray://)"
        ) from None


def warn_of_another(address: str | None) -> None:
    """Warn if this process is connected to a different Ray cluster than HOST:PORT."""
    used = ray.get_runtime_context().gcs_address
    if address is not None and not may_be_same(address, used):
        warnings.warn(
            f"this process is connected to the Ray at {used} already and uses that one, not the "
            f"one at {address}: call ray.shutdown() before, or leave address= out",
            stacklevel=2,
        )


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the host and port of an address of the form HOST:PORT; None for other forms."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdecimal()):
        return None
    return host.strip("[]"), int(port)


def may_be_same(given: str, used: str) -> bool:
    """Return whether both may be one cluster's address. Ray replaces loopback by an outer one."""
    one, other = host_and_port(given), host_and_port(used)
    if one is None or other is None:
        return True
    numbers = _numbers(one[0])
    loopback = any(number in ("127.0.0.1", "::1") for number in numbers)
    return one[1] == other[1] and (loopback or bool(numbers & _numbers(other[0])))


def _numbers(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}


def require_known_keys(runtime_env: Mapping[str, Any] | None) -> None:
    """Raise an error for a misspelled key, which Ray would silently ignore.

    Other unknown keys may belong to plugins.
    """
    for key in runtime_env or {}:
        meant = None if key in RuntimeEnv.known_fields else close_to(key, RuntimeEnv.known_fields)
        if meant is not None:
            raise ConfigError(f"runtime_env= has no key {key!r}; did you mean {meant!r}?")
