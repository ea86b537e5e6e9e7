"""Sending and receiving of frames through a socket, without copying large ones."""

import math
from collections.abc import Sequence

import zmq

from flambeau.errors import ProtocolError
from flambeau.messaging.frames import MAX_FRAMES

#: For smaller frames, a copy takes the sender less time than lending memory to the transport.
LEND_BYTES = 128 * 1024
HANDSHAKE_SECONDS = 10.0
#: Bytes that encryption adds to a frame, rounded up.
_SEAL_BYTES = 64

Socket = zmq.Socket[bytes]


def set_limits(socket: Socket, max_bytes: int) -> None:
    """Limit the size of a frame from a peer, and the duration of its handshake."""
    socket.maxmsgsize = max_bytes + _SEAL_BYTES
    socket.handshake_ivl = int(HANDSHAKE_SECONDS * 1000)
    socket.copy_threshold = LEND_BYTES


def check_sizes(frames: Sequence[memoryview], max_bytes: int) -> None:
    """Raise `ProtocolError` for a frame that the other side would refuse by disconnecting."""
    largest = max(frame.nbytes for frame in frames)
    if largest > max_bytes:
        raise ProtocolError(
            f"a frame of {largest} bytes on a connection for at most max_bytes={max_bytes}; "
            "split it, or raise max_bytes on both sides"
        )


def receive_frames(socket: Socket, timeout: float) -> list[memoryview] | None:
    """Return the frames of the next message, or None after `timeout` seconds.

    The views are writable, share no memory with other objects and keep it alive. Of a message with
    more frames than allowed, only enough are kept to detect that.
    """
    frame = _next_frame(socket)
    if frame is None and timeout > 0 and socket.poll(math.ceil(timeout * 1000)):
        frame = _next_frame(socket)
    if frame is None:
        return None
    frames = [frame.buffer]
    while frame.more:
        frame = socket.recv(copy=False)
        if len(frames) < MAX_FRAMES + 2:
            frames.append(frame.buffer)
    return frames


def _next_frame(socket: Socket) -> zmq.Frame | None:
    try:
        return socket.recv(zmq.DONTWAIT, copy=False)
    except zmq.Again:
        return None
