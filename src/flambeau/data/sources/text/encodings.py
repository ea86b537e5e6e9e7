"""Encodings of text files that can be cut at line ends.

They are UTF-8 and encodings with one byte per character, whose first 128 are those of ASCII.
"""

import codecs
from dataclasses import dataclass
from typing import final

import pyarrow as pa

from flambeau.errors import ConfigError, DataError

UTF8 = "utf-8"
#: Advice about bytes that cannot be decoded, for messages.
OTHER_ENCODING = "if the file is right, give its encoding, such as encoding='latin-1'"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_CONVERT = "convert the files first: iconv -f {} -t utf-8 IN > OUT"


@final
@dataclass(frozen=True)
class Encoding:
    """An encoding, by its name in Python."""

    name: str

    @property
    def is_utf8(self) -> bool:
        """Return whether no conversion is necessary."""
        return self.name == UTF8

    def to_utf8(self, text: bytes) -> bytes:
        """Return text as UTF-8; raise `UnicodeDecodeError` if it is not in this encoding."""
        return text if self.is_utf8 else text.decode(self.name).encode()

    def stream(self, stream: pa.NativeFile) -> pa.NativeFile:
        """Return a stream of UTF-8, which raises an error for text that is not in this encoding."""
        if self.is_utf8:
            return stream
        return pa.transcoding_input_stream(stream, self.name, UTF8)


def encoding_of(name: str) -> Encoding:
    """Return the encoding of a name such as "latin-1"; raise `ConfigError` if it is unsupported."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, TypeError):
        raise ConfigError(
            f"encoding={name!r} is not known; give 'utf-8', 'latin-1', 'cp1252' or another name "
            "that Python knows"
        ) from None
    if found in (UTF8, "utf-8-sig", "ascii"):
        return Encoding(UTF8)  # a byte order mark is always left out
    if not _has_single_bytes(found):
        raise ConfigError(
            f"encoding={name!r}: files are cut at line ends, which needs UTF-8 or an encoding with "
            f"one byte for each character, such as 'latin-1'; {_CONVERT.format(found)}"
        )
    return Encoding(found)


def require_no_utf16(start: bytes, path: str) -> None:
    """Raise `DataError` if the first bytes of a file indicate UTF-16."""
    if start[:2] in _UTF16_MARKS and b"\0" in start:
        raise DataError(
            f"{path} is UTF-16 by its first bytes, and cannot be cut at line ends; "
            f"{_CONVERT.format('utf-16')}"
        )


def _has_single_bytes(name: str) -> bool:
    """Return whether each byte is a character (or none), and the first 128 are ASCII."""
    ascii_bytes = bytes(range(128))
    pairs = bytes(byte for first in range(256) for pair in range(256) for byte in (first, pair))
    pairs += b"\x1b$B0!"  # switches the character set in some encodings
    try:
        same = ascii_bytes.decode(name) == ascii_bytes.decode("ascii")
        return same and len(pairs.decode(name, errors="replace")) == len(pairs)
    except (UnicodeError, LookupError):
        return False
