"""A peer that speaks ZMTP 3.1 byte by byte, and may stop or misbehave at any point."""

import socket

from flambeau.messaging.tokens import new_token

MORE, LONG, COMMAND = 1, 2, 4


def greeting(mechanism: bytes = b"PLAIN") -> bytes:
    """The 64 bytes that open a connection."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


def frame(body: bytes, flags: int = 0, length: int | None = None) -> bytes:
    """One frame; `length` is what it claims."""
    claimed = len(body) if length is None else length
    if claimed > 255:
        return bytes([flags | LONG]) + claimed.to_bytes(8, "big") + body
    return bytes([flags, claimed]) + body


def command(name: bytes, body: bytes) -> bytes:
    return frame(bytes([len(name)]) + name + body, COMMAND)


def hello(user: bytes, password: bytes) -> bytes:
    """The command that shows a token."""
    return command(b"HELLO", bytes([len(user)]) + user + bytes([len(password)]) + password)


def initiate() -> bytes:
    """The command that completes the client's half of the handshake."""
    kind = b"DEALER"
    return command(b"INITIATE", b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind)


def connect(address: str, *sent: bytes) -> socket.socket:
    """A connection on which some bytes were sent. Waits at most ten seconds for anything."""
    host, port = address.removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(b"".join(sent))
    return connection


def join(address: str, secret: bytes, *sent: bytes) -> socket.socket:
    """A connection of a member: with a valid token and a completed handshake."""
    connection = connect(address, greeting(), hello(*new_token(secret)))
    read_until(connection, b"WELCOME")
    connection.sendall(initiate())
    read_until(connection, b"READY")
    connection.sendall(b"".join(sent))
    return connection


def read_until(connection: socket.socket, marker: bytes) -> bytes:
    """What arrives, to the end of `marker`."""
    received = b""
    while marker not in received:
        more = connection.recv(4096)
        assert more, f"ended after {received!r}, before {marker!r}"
        received += more
    return received


def read_to_end(connection: socket.socket) -> bytes:
    """What arrives until the other side ends the connection."""
    received = b""
    try:
        while more := connection.recv(4096):
            received += more
    except ConnectionResetError:
        return received
    return received
