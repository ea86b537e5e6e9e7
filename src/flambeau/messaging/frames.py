"""Messages as frames: one header (magic, protocol version, msgpack), then raw buffers."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from flambeau.errors import ProtocolError

PROTOCOL_VERSION = 1
MAX_HEADER_BYTES = 8 * 2**20
MAX_BUFFERS = 64

_PREFIX = b"FLB" + bytes([PROTOCOL_VERSION])

Message = TypeVar("Message")


class Codec(Generic[Message]):
    """Turns the messages of one protocol (a union of tagged structs) into frames and back."""

    def __init__(self, messages: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(messages)

    def encode(self, message: Message, buffers: Sequence[Any] = ()) -> list[Any]:
        """The frames of a message; `buffers` are sent as they are, without a copy."""
        return [_PREFIX + self._encoder.encode(message), *buffers]

    def decode(self, frames: Sequence[bytes]) -> tuple[Message, Sequence[bytes]]:
        """The message and its buffers. Raises `ProtocolError` for anything that is not ours."""
        if not 1 <= len(frames) <= 1 + MAX_BUFFERS:
            raise ProtocolError(f"a message of {len(frames)} frames")
        header = frames[0]
        if len(header) > MAX_HEADER_BYTES:
            raise ProtocolError(f"a header of {len(header)} bytes")
        if header[:3] != _PREFIX[:3]:
            raise ProtocolError("not a Flambeau message")
        if header[:4] != _PREFIX:
            theirs = header[3] if len(header) > 3 else "none"
            raise ProtocolError(f"protocol version {theirs}, ours is {PROTOCOL_VERSION}")
        try:
            return self._decoder.decode(memoryview(header)[4:]), frames[1:]
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"malformed header: {error}") from None
