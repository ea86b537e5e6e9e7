"""Messages as frames: one header (magic, protocol version, msgpack), then raw buffers."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from flambeau.errors import ProtocolError

PROTOCOL_VERSION = 2
MAX_HEADER_BYTES = 8 * 2**20
MAX_BUFFERS = 4096
MAX_FRAMES = 1 + MAX_BUFFERS

_PREFIX = b"FLB" + bytes([PROTOCOL_VERSION])
#: Prefixes of messages about shared memory: an offer of it, and the place of buffers in it.
OFFER = b"FLO" + bytes([PROTOCOL_VERSION])
WHERE = b"FLW" + bytes([PROTOCOL_VERSION])

Message = TypeVar("Message")


class Codec(Generic[Message]):
    """Codec between frames and the messages of one protocol, which is a union of tagged structs."""

    def __init__(self, messages: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(messages)

    def encode(self, message: Message, buffers: Sequence[Any] = ()) -> list[memoryview]:
        """Return the frames of a message: a header, and C-contiguous views of `buffers`."""
        header = _PREFIX + self._encoder.encode(message)
        _check_header(len(header))
        if len(buffers) > MAX_BUFFERS:
            raise ProtocolError(f"{len(buffers)} buffers; send at most {MAX_BUFFERS} in a message")
        return [memoryview(header), *map(_view, buffers)]

    def decode(self, frames: Sequence[memoryview]) -> tuple[Message, Sequence[memoryview]]:
        """Return the message and its buffers; raise `ProtocolError` if it is malformed."""
        if not 1 <= len(frames) <= MAX_FRAMES:
            raise ProtocolError("a message without frames" if not frames else "too many frames")
        header = frames[0]
        _check_header(len(header))
        if header[:3] != _PREFIX[:3]:
            raise ProtocolError("not a Flambeau message")
        if header[:4] != _PREFIX:
            theirs = header[3] if len(header) > 3 else "none"
            raise ProtocolError(f"protocol version {theirs}, ours is {PROTOCOL_VERSION}")
        try:
            return self._decoder.decode(header[4:]), frames[1:]
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ProtocolError(f"malformed header: {error}") from None


def is_offer(frames: Sequence[memoryview]) -> bool:
    """Return whether a message offers shared memory, or reports that it was accepted."""
    return len(frames) == 1 and frames[0][:4] == OFFER


def is_shared(frames: Sequence[memoryview]) -> bool:
    """Return whether the buffers of a message are in shared memory."""
    return len(frames) > 1 and frames[0][:4] == WHERE


def _check_header(length: int) -> None:
    if length > MAX_HEADER_BYTES:
        raise ProtocolError(f"a header of {length} bytes; the limit is {MAX_HEADER_BYTES}")


def _view(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    if not view.c_contiguous:
        # Other layouts would arrive in an order that the receiver cannot know.
        raise ProtocolError("a buffer that is not C-contiguous; send numpy.ascontiguousarray of it")
    return view
