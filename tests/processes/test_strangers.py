"""Whatever is sent to a server, by members or by strangers: it serves on, and does not grow."""

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from echo_server import CODEC, MAX_BYTES, Ask, Tell

from flambeau.messaging import Client, new_secret
from flambeau.messaging.tokens import new_token

SECRET = new_secret()
SOON = 20.0
MEBIBYTE = 2**20
MUTATED_MESSAGES = 100_000
RAW_CONNECTIONS = 10_000
AT_ONCE = 50
MORE, LONG, COMMAND = 1, 2, 4

Frames = list[bytes]


class EchoServer:
    """The server's process, and an honest client of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("echo_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(SECRET.hex() + "\n")
        self._process.stdin.flush()
        self.address = self._process.stdout.readline().strip()
        self._watched = psutil.Process(self._process.pid)
        self._honest = Client(CODEC, SECRET, self.address, max_bytes=MAX_BYTES)
        self._asked = 0
        self.serves()
        self.descriptors = self._watched.num_fds()

    def serves(self) -> None:
        """An honest client gets its answer."""
        self._asked += 1
        buffers = [b"x" * self._asked, b""]
        self._honest.send(Ask(self._asked, "honest"), buffers)
        assert self._honest.receive(SOON) == (Ask(self._asked, "honest"), buffers)

    def memory(self) -> int:
        """Resident bytes."""
        return int(self._watched.memory_info().rss)

    def wait_until_only_the_honest_are_left(self) -> None:
        deadline = time.monotonic() + SOON
        while self._watched.num_fds() > self.descriptors:
            assert time.monotonic() < deadline, "connections of strangers are still open"
            self.serves()

    def end(self) -> tuple[dict[str, int], list[str]]:
        """End the server; how often it refused what, and what it said about it."""
        self._honest.close()
        out, _ = self._process.communicate(timeout=SOON)
        assert self._process.returncode == 0
        report = json.loads(out)
        return report["refused"], report["said"]

    def kill(self) -> None:
        self._honest.close()
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def server() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.kill()


# Members


def _valid(chance: random.Random) -> Frames:
    message = chance.choice(
        [
            Ask(chance.randrange(2**40), "a name", [1, -2, 2**50]),
            Tell({"loss": 0.5, "auc": 0.75}, True),
        ]
    )
    buffers = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(4))]
    return [frame.tobytes() for frame in CODEC.encode(message, buffers)]


def _flip(frames: Frames, chance: random.Random) -> Frames:
    index = chance.randrange(len(frames))
    body = bytearray(frames[index])
    for _ in range(chance.randint(1, 4) if body else 0):
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return [*frames[:index], bytes(body), *frames[index + 1 :]]


def _truncate(frames: Frames, chance: random.Random) -> Frames:
    return [frame[: chance.randint(0, len(frame))] for frame in frames]


def _extend(frames: Frames, chance: random.Random) -> Frames:
    most = 5000 if chance.random() < 0.001 else 5
    return frames + [chance.randbytes(8)] * chance.randint(1, most)


def _swap(frames: Frames, chance: random.Random) -> Frames:
    return chance.sample(frames, len(frames))


def _splice(frames: Frames, chance: random.Random) -> Frames:
    place = chance.randint(0, len(frames[0]))
    return [frames[0][:place] + chance.randbytes(9) + frames[0][place:], *frames[1:]]


def _noise(frames: Frames, chance: random.Random) -> Frames:
    return [chance.randbytes(chance.randrange(60)) for _ in frames]


MUTATIONS: list[Callable[[Frames, random.Random], Frames]] = [
    _flip,
    _truncate,
    _extend,
    _swap,
    _splice,
    _noise,
]


def _drain(client: Client[Ask | Tell]) -> int:
    answers = 0
    while client.receive(0) is not None:
        answers += 1
    return answers


def test_a_hundred_thousand_mutated_messages_of_a_member(server: EchoServer) -> None:
    chance = random.Random(2024)
    member = Client(CODEC, SECRET, server.address, max_bytes=MAX_BYTES)
    answers, before = 0, 0
    for number in range(MUTATED_MESSAGES):
        frames = chance.choice(MUTATIONS)(_valid(chance), chance)
        member.socket.send_multipart(frames)
        if number % 500 == 0:
            answers += _drain(member)
            server.serves()
        if number == 5000:
            before = server.memory()
    member.send(Ask(-1))
    while (received := member.receive(SOON)) is not None and received[0] != Ask(-1):
        answers += 1
    member.close()
    server.wait_until_only_the_honest_are_left()
    assert server.memory() - before < 64 * MEBIBYTE
    refused, said = server.end()
    assert answers + sum(refused.values()) == MUTATED_MESSAGES
    assert sum(refused.values()) > MUTATED_MESSAGES / 4
    assert len(refused) < 200
    assert len(said) == 1


def _frame(body: bytes, flags: int = 0) -> bytes:
    return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body


def _read_until(connection: socket.socket, marker: bytes) -> None:
    received = b""
    while marker not in received:
        more = connection.recv(4096)
        assert more, received
        received += more


def _join(address: str) -> socket.socket:
    user, password = new_token(SECRET)
    token = bytes([len(user)]) + user + bytes([len(password)]) + password
    connection = _connect(address)
    connection.sendall(_greeting() + _frame(b"\x05HELLO" + token, COMMAND))
    _read_until(connection, b"WELCOME")
    connection.sendall(_frame(b"\x08INITIATE", COMMAND))
    _read_until(connection, b"READY")
    return connection


def test_messages_that_members_do_not_finish_are_freed_when_they_leave(server: EchoServer) -> None:
    part = _frame(bytes(MAX_BYTES // 2), MORE)
    before = server.memory()
    for _ in range(10):
        with _join(server.address) as member:
            for _ in range(100):
                member.sendall(part)
            server.serves()
        server.wait_until_only_the_honest_are_left()
    assert server.memory() - before < 150 * MEBIBYTE
    assert server.end() == ({}, [])


def test_a_member_may_come_and_go_often(server: EchoServer) -> None:
    for number in range(300):
        member = Client(CODEC, SECRET, server.address)
        member.send(Ask(number))
        assert member.receive(SOON) == (Ask(number), [])
        member.close()
    server.wait_until_only_the_honest_are_left()
    assert server.end() == ({}, [])


# Strangers


def _greeting(mechanism: bytes = b"PLAIN") -> bytes:
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


def _garbage(chance: random.Random) -> bytes:
    return bytes([chance.randrange(255)]) + chance.randbytes(chance.randint(30, 500))


def _mutated_greeting(chance: random.Random) -> bytes:
    return _flip([_greeting()], chance)[0]


def _half_handshake(chance: random.Random) -> bytes:
    hello = _frame(b"\x05HELLO\x04user\x08password", COMMAND)
    return _greeting() + hello[: chance.randrange(len(hello))]


def _wrong_token(chance: random.Random) -> bytes:
    user, password = chance.randbytes(20), chance.randbytes(64)
    return _greeting() + _frame(b"\x05HELLO\x14" + user + b"\x40" + password, COMMAND)


def _no_mechanism(chance: random.Random) -> bytes:
    return _greeting(b"NULL") + _frame(b"\x05READY", COMMAND) + _frame(b"message", MORE)


def _message_at_once(chance: random.Random) -> bytes:
    return _greeting() + _frame(chance.randbytes(100), MORE) * chance.randint(1, 20)


def _endless_frame(chance: random.Random) -> bytes:
    return _greeting() + bytes([COMMAND | LONG]) + chance.randbytes(8) + chance.randbytes(100)


STRANGERS: list[Callable[[random.Random], bytes]] = [
    _garbage,
    lambda chance: _greeting(),
    _mutated_greeting,
    _half_handshake,
    _wrong_token,
    _no_mechanism,
    _message_at_once,
    _endless_frame,
    lambda chance: b"",
]


def _connect(address: str) -> socket.socket:
    host, port = address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=SOON)


def _hang_up(connection: socket.socket) -> None:
    """Close without a farewell, so that thousands of connections leave no ports behind."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _say(connection: socket.socket, words: bytes) -> None:
    """Send, and wait for the first word of the answer, if there is one."""
    try:
        connection.sendall(words)
        connection.recv(1)
    except (ConnectionResetError, BrokenPipeError):
        return


def test_ten_thousand_connections_of_strangers(server: EchoServer) -> None:
    chance = random.Random(2025)
    before = 0
    for batch in range(RAW_CONNECTIONS // AT_ONCE):
        strangers = [_connect(server.address) for _ in range(AT_ONCE)]
        for stranger in strangers:
            _say(stranger, chance.choice(STRANGERS)(chance))
        server.serves()
        for stranger in strangers:
            _hang_up(stranger)
        if batch == 20:
            before = server.memory()
    server.wait_until_only_the_honest_are_left()
    assert server.memory() - before < 64 * MEBIBYTE
    refused, said = server.end()
    assert set(refused) == {"no completed handshake", "no valid token"}
    # One that shows a token and hangs up before the answer may count as both.
    assert RAW_CONNECTIONS <= sum(refused.values()) < 1.05 * RAW_CONNECTIONS
    assert 1 <= len(said) <= 2


def test_silent_strangers_are_cut_off_in_time(server: EchoServer) -> None:
    words = [b"", _greeting()[:10], _greeting(), _half_handshake(random.Random(1))]
    strangers = [_connect(server.address) for _ in range(200)]
    for index, stranger in enumerate(strangers):
        stranger.sendall(words[index % len(words)])
    server.serves()
    server.wait_until_only_the_honest_are_left()
    for stranger in strangers:
        while stranger.recv(4096):
            continue
        stranger.close()
    refused, _ = server.end()
    assert refused == {"no completed handshake": 200}


def test_strangers_that_never_stop_sending_do_not_fill_the_memory(server: EchoServer) -> None:
    before = server.memory()
    flood = bytes([COMMAND | LONG]) + (MAX_BYTES).to_bytes(8, "big") + bytes(MAX_BYTES)
    sent = 0
    for _ in range(20):
        with _connect(server.address) as stranger:
            stranger.sendall(_greeting())
            try:
                for _ in range(50):
                    stranger.sendall(flood)
                    sent += 1
            except (ConnectionResetError, BrokenPipeError):
                server.serves()
    server.wait_until_only_the_honest_are_left()
    assert sent < 20 * 50
    assert server.memory() - before < 64 * MEBIBYTE


def test_a_client_without_credentials_is_not_heard(server: EchoServer) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(server.address)
        stranger.send_multipart([frame.tobytes() for frame in CODEC.encode(Ask(1))])
        for _ in range(20):
            server.serves()
        assert not stranger.poll(0)
