"""No valid token, no service; and whatever strangers do, members are served."""

import re
from collections.abc import Iterator

import msgspec
import pytest
from stranger import (
    COMMAND,
    MORE,
    command,
    connect,
    frame,
    greeting,
    hello,
    initiate,
    join,
    read_to_end,
    read_until,
)

from flambeau.messaging import Client, Codec, Envelope, Server, new_secret, transport
from flambeau.messaging.arrivals import UNKNOWN
from flambeau.messaging.frames import MAX_BUFFERS, PROTOCOL_VERSION
from flambeau.messaging.tokens import new_token

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 10.0
BY_ADDRESS = f"refused {HOST}: no completed handshake"
#: For a connection that was cut before its address could be asked for.
GONE = f"refused {UNKNOWN}: no completed handshake"
PREFIX = b"FLB" + bytes([PROTOCOL_VERSION])


class Note(msgspec.Struct, frozen=True, tag=True):
    text: str


CODEC: Codec[Note] = Codec(Note)


class Door:
    """A server, and what it said about those it refused."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.server = Server(CODEC, SECRET, HOST, max_bytes=100_000, on_refusal=self.said.append)
        self.address = self.server.address

    def serves_members(self) -> bool:
        """Whether a new member is heard and answered."""
        client = Client(CODEC, SECRET, self.address)
        client.send(Note("hello"))
        envelope = self.next_message()
        self.server.send(envelope.peer, envelope.message)
        answered = client.receive(SOON) == (Note("hello"), [])
        client.close()
        return answered and envelope.message == Note("hello")

    def next_message(self) -> Envelope[Note]:
        for _ in range(200):
            envelope = self.server.receive(0.1)
            if envelope is not None:
                return envelope
        raise AssertionError("no message came")

    def wait_for_word(self) -> None:
        """Receive until something was said."""
        for _ in range(200):
            if self.said:
                return
            assert self.server.receive(0.05) is None
        raise AssertionError("nothing was said")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(transport, "HANDSHAKE_SECONDS", 0.5)
    door = Door()
    yield door
    door.server.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x01",
        b"",
        greeting(),
        greeting()[:30],
        greeting(b"NULL"),
        greeting(b"CURVE"),
        greeting().replace(b"\x7f\x03", b"\x7f\x01"),
        greeting() + command(b"HELLO", b"\xff" * 3),
        greeting() + hello(*new_token(SECRET))[:20],
        greeting() + command(b"READY", b""),
        greeting() + initiate(),
        greeting() + frame(b"let me in", MORE) * 100,
        greeting() + frame(b"", COMMAND, length=2**40),
        greeting() + frame(b"\x05HELLO" + bytes(1000), COMMAND),
        bytes(range(256)) * 40,
    ],
    ids=[
        "another protocol",
        "one byte",
        "silence",
        "greeting, then silence",
        "half a greeting",
        "no mechanism",
        "another mechanism",
        "an old version",
        "a malformed command",
        "half a handshake",
        "a command out of turn",
        "no token",
        "an unfinished message",
        "an endless frame",
        "a long command",
        "garbage",
    ],
)
def test_a_stranger_is_cut_off_and_named_while_members_are_served(door: Door, sent: bytes) -> None:
    with connect(door.address, sent) as stranger:
        assert door.serves_members()
        read_to_end(stranger)
    door.wait_for_word()
    assert door.said in ([BY_ADDRESS], [GONE])
    assert door.server.refused == {"no completed handshake": 1}


@pytest.mark.parametrize(
    ("user", "password"),
    [(b"", b""), (b"root", b"secret"), (b"\xff" * 255, b"\0" * 255), new_token(new_secret())],
    ids=["empty", "guessed", "long", "of another job"],
)
def test_a_wrong_token_is_refused_and_named(door: Door, user: bytes, password: bytes) -> None:
    with connect(door.address, greeting(), hello(user, password)) as stranger:
        read_until(stranger, b"RROR\x03400")
    door.wait_for_word()
    assert door.said == [f"refused {HOST}: no valid token"]
    assert door.serves_members()
    assert door.server.refused == {"no valid token": 1}


def test_a_token_that_was_seen_on_the_wire_is_of_no_use(door: Door) -> None:
    token = new_token(SECRET)
    with connect(door.address, greeting(), hello(*token)) as member:
        read_until(member, b"WELCOME")
        with connect(door.address, greeting(), hello(*token)) as replay:
            read_until(replay, b"RROR\x03400")


def test_a_peer_is_named_once_however_often_it_comes(door: Door) -> None:
    for _ in range(20):
        with connect(door.address, greeting(b"NULL")) as stranger:
            read_to_end(stranger)
    while door.server.refused["no completed handshake"] < 20:
        assert door.server.receive(0.05) is None
    assert len(door.said) == len(set(door.said))
    assert set(door.said) <= {BY_ADDRESS, GONE}


def test_a_member_that_leaves_is_not_called_a_stranger(door: Door) -> None:
    assert door.serves_members()
    assert door.server.receive(0.2) is None
    assert door.said == []
    assert not door.server.refused


MALFORMED = {
    "another protocol": [b"GET / HTTP/1.1"],
    "another version": [b"FLB\x63\x80"],
    "an empty header": [b""],
    "a truncated header": [CODEC.encode(Note("hello"))[0].tobytes()[:-3]],
    "a mutated header": [CODEC.encode(Note("hello"))[0].tobytes().replace(b"Note", b"Nose")],
    "too many frames": [PREFIX] * (MAX_BUFFERS + 2),
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_member_with_malformed_messages_is_named_once(door: Door, frames: list[bytes]) -> None:
    message = b"".join(frame(part, MORE) for part in frames[:-1]) + frame(frames[-1])
    with join(door.address, SECRET, message * 2):
        while door.server.refused.total() < 2:
            assert door.server.receive(0.05) is None
        assert door.serves_members()
    (sentence,) = door.said
    (reason,) = door.server.refused
    assert re.fullmatch(rf"refused peer [0-9a-f]+: {re.escape(reason)}", sentence)


def test_a_member_with_too_long_a_frame_is_cut_off(door: Door) -> None:
    with join(door.address, SECRET, frame(b"", length=200_000)) as member:
        read_to_end(member)
    assert door.serves_members()


def test_a_message_that_its_sender_does_not_finish_is_never_seen(door: Door) -> None:
    header = CODEC.encode(Note("unfinished"))[0].tobytes()
    with join(door.address, SECRET, frame(header, MORE), frame(b"part", MORE)):
        assert door.serves_members()
    assert door.server.receive(0.2) is None
    assert not door.server.refused
