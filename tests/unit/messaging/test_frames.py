import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.errors import ProtocolError
from flambeau.messaging.frames import MAX_BUFFERS, MAX_HEADER_BYTES, PROTOCOL_VERSION, Codec


class Ask(msgspec.Struct, frozen=True, tag=True):
    name: str
    rows: list[int] = []


class Answer(msgspec.Struct, frozen=True, tag=True):
    values: dict[str, float]


CODEC: Codec[Ask | Answer] = Codec(Ask | Answer)
PREFIX = b"FLB" + bytes([PROTOCOL_VERSION])


@given(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.binary(), max_size=4))
def test_a_message_and_its_buffers_come_back_as_they_were(
    name: str, rows: list[int], buffers: list[bytes]
) -> None:
    assert CODEC.decode(CODEC.encode(Ask(name, rows), buffers)) == (Ask(name, rows), buffers)


def test_buffers_are_not_copied() -> None:
    buffer = bytearray(8)
    assert CODEC.encode(Ask("a"), [buffer])[1].obj is buffer


def test_another_version_is_refused_and_both_are_named() -> None:
    (header,) = CODEC.encode(Ask("a"))
    theirs = bytearray(header)
    theirs[3] = 9
    with pytest.raises(ProtocolError, match=f"version 9, ours is {PROTOCOL_VERSION}"):
        CODEC.decode([memoryview(theirs)])


@given(st.data())
def test_a_truncated_header_is_refused(data: st.DataObject) -> None:
    (header,) = CODEC.encode(Ask("abc", [1, 2**40]))
    length = data.draw(st.integers(0, len(header) - 1))
    with pytest.raises(ProtocolError):
        CODEC.decode([header[:length]])


@given(st.lists(st.binary(), max_size=3))
def test_random_frames_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode(frames)


@given(st.binary())
def test_random_bytes_after_our_prefix_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode([PREFIX + body])


def test_text_that_is_not_utf_8_is_refused() -> None:
    header = CODEC.encode(Ask("abc"))[0].tobytes().replace(b"abc", b"a\x9ec")
    with pytest.raises(ProtocolError, match="malformed"):
        CODEC.decode([memoryview(header)])


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode([PREFIX + b"\x91" * 100_000])


@pytest.mark.parametrize(
    "frames",
    [[], [PREFIX] * (MAX_BUFFERS + 2), [PREFIX + bytes(MAX_HEADER_BYTES)]],
    ids=["no frame", "too many frames", "too long a header"],
)
def test_more_than_the_limits_is_refused_unread(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match=r"without frames|too many frames|a header of \d+"):
        CODEC.decode(frames)


def test_a_message_of_the_wrong_type_is_refused() -> None:
    wrong = msgspec.msgpack.encode({"type": "Ask", "name": 3})
    with pytest.raises(ProtocolError, match="malformed"):
        CODEC.decode([PREFIX + wrong])


def test_a_buffer_in_another_layout_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ProtocolError, match="ascontiguousarray"):
        CODEC.encode(Ask("a"), [np.zeros((3, 4)).T])


def test_more_than_the_limits_is_refused_where_it_is_made() -> None:
    with pytest.raises(ProtocolError, match=f"at most {MAX_BUFFERS}"):
        CODEC.encode(Ask("a"), [b""] * (MAX_BUFFERS + 1))
    with pytest.raises(ProtocolError, match=f"the limit is {MAX_HEADER_BYTES}"):
        CODEC.encode(Ask("a" * MAX_HEADER_BYTES))
