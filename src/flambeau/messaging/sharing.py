"""Shared memory for large buffers between processes of one machine, instead of sockets.

The client makes the memory and offers it; a server that can open it accepts it. It is divided into
places for the messages of each side. A message with large buffers names its place, which becomes
free when the receiver has dropped the buffers. If there is no shared memory, or no place is free,
buffers go through the socket.
"""

import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from typing import Any, final

import msgspec
import numpy as np

from flambeau.errors import ProtocolError
from flambeau.messaging.frames import OFFER, WHERE, is_shared
from flambeau.messaging.memory_files import MemoryFile, can_share, create

#: Smaller buffers are sent with the message.
LEAST_BYTES = 8 * 1024
#: Size of a place, for all large buffers of a message.
PLACE_BYTES = 16 * 2**20
#: Places of each side: more than there are messages whose buffers are in use.
PLACES = 8
_ALIGNED = 64
#: Placeholder for the number of a message while its place is being filled.
_RESERVED = -1
_FIRST = mmap.PAGESIZE
_LENGTH = _FIRST + 2 * PLACES * PLACE_BYTES
_encoder = msgspec.msgpack.Encoder()

Array = np.ndarray[Any, Any]


class _Where(msgspec.Struct, frozen=True, array_like=True):
    """Place of a message, its number there, and the bounds of each buffer that is in the place."""

    place: int
    number: int
    spans: list[tuple[int, int] | None]


_where = msgspec.msgpack.Decoder(_Where)
_file = msgspec.msgpack.Decoder(MemoryFile)


@final
class Room:
    """A place that is being filled; buffers of size 0 are not in it."""

    def __init__(self, place: int, memory: Array, sizes: Sequence[int]) -> None:
        self.place = place
        starts = np.cumsum([0, *map(_aligned, sizes)]).tolist()
        self.spans = [
            (start, start + size) if size else None
            for start, size in zip(starts, sizes, strict=False)
        ]
        self._memory = memory
        self._arrays: dict[int, Array] = {}

    def array(self, number: int, dtype: Any, shape: tuple[int, ...]) -> Array | None:
        """Return an array in which to make a buffer without a copy; None if it is not in here."""
        span = self.spans[number]
        if span is None:
            return None
        self._arrays[number] = self._memory[slice(*span)].view(dtype).reshape(shape)
        return self._arrays[number]

    def fill(self, buffers: Sequence[memoryview]) -> None:
        """Copy the buffers that were not made here."""
        for number, (buffer, span) in enumerate(zip(buffers, self.spans, strict=True)):
            made_in: Any = buffer.obj
            if span is not None and made_in is not self._arrays.get(number):
                self._memory[slice(*span)] = np.frombuffer(buffer, np.uint8)


@final
class SharedMemory:
    """One side's view of the memory: it writes to its own places and reads the other side's."""

    def __init__(self, file: MemoryFile, *, is_client: bool) -> None:
        """Map the file; raise `OSError` or `ValueError` if this process cannot open it."""
        if file.length != _LENGTH:
            raise ValueError(f"{file.length} bytes of shared memory instead of {_LENGTH}")
        self.file = file
        memory = np.frombuffer(file.open(), np.uint8)
        #: Content of each place: the number of a message, or 0.
        states = memory[: 2 * PLACES * 8].view(np.int64).reshape(2, PLACES)
        places = memory[_FIRST:].reshape(2, PLACES, PLACE_BYTES)
        mine, theirs = (0, 1) if is_client else (1, 0)
        self._my_states, self._their_states = states[mine], states[theirs]
        self._my_places, self._their_places = places[mine], places[theirs]
        # Not from 0: when memory is opened again, numbers must not be repeated.
        self._sent = secrets.randbits(48)

    def room(self, sizes: Sequence[int]) -> "Room | None":
        """Return a place for buffers of these sizes, which `put` sends; None if none is free."""
        large = [size if size >= LEAST_BYTES else 0 for size in sizes]
        free = np.flatnonzero(self._my_states == 0)
        if not 0 < sum(map(_aligned, large)) <= PLACE_BYTES or not free.size:
            return None
        place = int(free[0])
        self._my_states[place] = _RESERVED
        room = Room(place, self._my_places[place], large)
        # Frees the place if making the buffers fails, so that they are never sent.
        forgotten = weakref.finalize(room, _free, self._my_states, place, _RESERVED, os.getpid())
        forgotten.atexit = False
        return room

    def put(self, frames: Sequence[memoryview], room: "Room | None" = None) -> list[memoryview]:
        """Return the frames (a header and buffers) of a message as they are to be sent."""
        buffers = frames[1:]
        if room is None:
            room = self.room([buffer.nbytes for buffer in buffers])
        if room is None:
            return list(frames)
        room.fill(buffers)
        self._sent += 1
        self._my_states[room.place] = self._sent
        where = WHERE + _encoder.encode(_Where(room.place, self._sent, room.spans))
        left = [each for each, span in zip(buffers, room.spans, strict=True) if span is None]
        return [memoryview(where), frames[0], *left]

    def take_back(self, frames: Sequence[memoryview]) -> None:
        """Free the place of a message that `put` returned but that was not sent."""
        if is_shared(frames):
            where = _decoded(_where, frames[0])
            _free(self._my_states, where.place, where.number, os.getpid())

    def get(self, frames: Sequence[memoryview]) -> list[memoryview] | None:
        """Return the header and buffers of a message in a place, or None if it was received before.

        After the first copy was dropped, the place may hold other buffers.
        """
        where = _decoded(_where, frames[0])
        if not 0 <= where.place < PLACES or len(frames) < 2:
            raise ProtocolError(f"shared memory has no place {where.place}")
        if where.number <= 0 or self._their_states[where.place] != where.number:
            return None
        memory = self._their_places[where.place][:]
        forgotten = weakref.finalize(
            memory, _free, self._their_states, where.place, where.number, os.getpid()
        )
        forgotten.atexit = False
        whole = memoryview(memory)  # its parts keep it, and thereby the array, alive
        rest = iter(frames[2:])
        found = [frames[1]]
        for span in where.spans:
            buffer = next(rest, None) if span is None else _part(whole, *span)
            if buffer is None:
                raise ProtocolError("fewer buffers than the message says")
            found.append(buffer)
        return [*found, *rest]


def offer() -> SharedMemory | None:
    """Create memory of this process, which is a client; None if that is not possible."""
    if not can_share():
        return None
    try:
        file = create(_LENGTH)
    except OSError:  # no descriptor left, or not permitted
        return None
    try:
        return SharedMemory(file, is_client=True)
    except (OSError, ValueError):  # no /proc, or no space for it
        file.close()
        return None


def offered(file: MemoryFile) -> memoryview:
    """Return the message that offers memory, or that reports that it was accepted."""
    return memoryview(OFFER + _encoder.encode(file))


def taken(frames: Sequence[memoryview]) -> SharedMemory | None:
    """Open the memory that a client offers; None if this process cannot open it."""
    file = _decoded(_file, frames[0])
    try:
        return SharedMemory(file, is_client=False)
    except (OSError, ValueError):
        return None


def _decoded(decoder: Any, frame: memoryview) -> Any:
    try:
        return decoder.decode(frame[4:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a malformed description of shared memory: {error}") from None


def _part(whole: memoryview, start: int, stop: int) -> memoryview:
    if not 0 <= start < stop <= PLACE_BYTES:
        raise ProtocolError(f"bytes {start} to {stop} of a place in shared memory")
    return whole[start:stop]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _free(states: Array, place: int, number: int, process: int) -> None:
    """Free a place; do nothing in a fork of the process, since the fork does not own the place."""
    if os.getpid() == process and states[place] == number:
        states[place] = 0
