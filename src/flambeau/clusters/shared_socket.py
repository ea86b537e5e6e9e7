"""The socket through which agents of one user share a fork server, in a folder of that user.

Only its owner can enter the folder, so no other user can connect. A process holds the folder's lock
while it creates, finds or removes the socket.
"""

import contextlib
import fcntl
import os
import select
import socket
import stat
from collections.abc import Iterator
from typing import final

_NAME = "socket"


@contextlib.contextmanager
def held(folder: str) -> Iterator[int]:
    """Hold the lock of a folder, which is created if it does not exist; yield its descriptor.

    Raise `PermissionError` for a folder that others own or can enter.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # removed just now
        except OSError as error:
            raise PermissionError(f"{folder} is not a folder of this user: {error}") from None
        try:
            _check(folder, os.fstat(descriptor))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                if _is_at(folder, descriptor):
                    yield descriptor
                    return
            finally:
                # Closing is not enough: a process forked meanwhile may hold the descriptor too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _check(folder: str, found: os.stat_result) -> None:
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} belongs to another user, or others can enter it")


def _is_at(folder: str, descriptor: int) -> bool:
    """Return whether the opened folder is still the one with that name."""
    try:
        return os.path.samestat(os.stat(folder, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def connect(descriptor: int) -> socket.socket | None:
    """Connect to the server of a locked folder; return None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(_address(descriptor))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def listen(descriptor: int) -> socket.socket:
    """Listen in a locked folder that has no server any more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NAME, dir_fd=descriptor)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_address(descriptor))
    listener.listen()
    return listener


def _address(descriptor: int) -> str:
    """Return the socket's path: short even if the folder's is not, as the limit is 107 bytes."""
    return f"/proc/self/fd/{descriptor}/{_NAME}"


@final
class Entrance:
    """The server's listening socket."""

    def __init__(self, listener: socket.socket, folder: str) -> None:
        listener.setblocking(False)
        listener.listen()  # again: clients see the id of the process that did so last
        self.listener, self._folder = listener, folder
        self._file = os.stat(os.path.join(folder, _NAME))

    def close(self) -> bool:
        """Remove the socket and its folder; if a client has just connected, only return False."""
        with held(self._folder) as descriptor:
            waiting = select.poll()
            waiting.register(self.listener, select.POLLIN)
            if waiting.poll(0):
                return False
            self.listener.close()
            # Unless temporary files were deleted and another server has started since.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(_NAME, dir_fd=descriptor), self._file):
                    os.unlink(_NAME, dir_fd=descriptor)
            with contextlib.suppress(OSError):  # not empty: the other server uses it
                os.rmdir(self._folder)
        return True
