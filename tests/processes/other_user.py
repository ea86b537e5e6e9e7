"""What a process of another user can find out about a job: `python other_user.py` (as root).

Reads a JSON object with `ports`, `unix` sockets, `processes`, `folders` and `secrets` (texts) from
standard input, becomes another user, tries everything, and prints what it got.
"""

import encodings.idna  # noqa: F401 - this user may not read the interpreter's files later
import json
import os
import resource
import selectors
import socket
import sys
from collections.abc import Iterator
from typing import Any

NOBODY = 65534
#: How long to wait for answers that should not come, of sockets that do not hang up.
PATIENCE = 2.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"PLAIN".ljust(20, b"\0") + bytes(32)
HELLO = b"\x05HELLO\x04user\x08password"
WORDS = {
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a greeting": GREETING,
    "no mechanism": GREETING.replace(b"PLAIN", b"NULL\0") + b"\x04\x06\x05READY",
    "a wrong token": GREETING + bytes([4, len(HELLO)]) + HELLO,
}
FILES = ("environ", "cmdline", "maps", "mem", "auxv", "cwd", "fd")


def become_another_user() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def answers(ports: list[int]) -> dict[str, str]:
    """All that these ports have to say to anything, in hexadecimal digits."""
    received, selector = {}, selectors.DefaultSelector()
    for port in ports:
        for name, words in WORDS.items():
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            connection.sendall(words)
            key = f"{port} to {name}"
            selector.register(connection, selectors.EVENT_READ, key)
            received[key] = ""
    while ready := selector.select(PATIENCE):
        for each, _ in ready:
            assert isinstance(each.fileobj, socket.socket)
            more = read(each.fileobj)
            received[each.data] += more.hex()
            if not more:
                selector.unregister(each.fileobj)
                each.fileobj.close()
    return received


def read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionError:
        return b""


def enters(path: str) -> bool:
    """Whether a Unix socket, abstract ones begin with @, takes a connection."""
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except (PermissionError, FileNotFoundError):
            return False
        return True


def crowd(port: int, size: int) -> int:
    """How many of `size` connections a port takes at the same time."""
    connections = []
    for _ in range(size):
        connections.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
    for each in connections:
        each.close()
    return len(connections)


def readable(paths: Iterator[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            if os.path.isdir(path):
                yield path, " ".join(os.listdir(path)).encode()
            else:
                with open(path, "rb") as file:
                    yield path, file.read()
        except OSError:
            continue  # which is what should happen


def below(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        for place, _, names in os.walk(folder):
            yield from (os.path.join(place, name) for name in names)


def look(job: dict[str, Any]) -> dict[str, Any]:
    own = [f"/proc/{pid}/{name}" for pid in job["processes"] for name in FILES]
    found = dict(readable(iter([*own, *below(job["folders"])])))
    secrets = [text.encode() for text in job["secrets"]]
    return {
        "answers": answers(job["ports"]),
        "entered": [path for path in job["unix"] if enters(path)],
        "crowds": [crowd(port, job["crowd"]) for port in job["ports"]],
        "read": sorted(found),
        "leaks": sorted(p for p, data in found.items() if any(s in data for s in secrets)),
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    become_another_user()
    print(json.dumps(look(asked)))
