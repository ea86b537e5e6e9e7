"""Memory that processes of one machine share: files without a name, gone with the last of them."""

import fcntl
import mmap
import os
import platform
import secrets
import sys

import msgspec

#: Others see stores in the order in which they were made. Elsewhere sockets do the work.
_ORDERED = ("x86_64", "AMD64")
_TOKEN_BYTES = 8
_SEALS = 0 if sys.platform != "linux" else fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class MemoryFile(msgspec.Struct, frozen=True, array_like=True):
    """Where the file is: process numbers mean little on other machines, hence the token."""

    process: int
    descriptor: int
    token: int
    length: int

    def open(self) -> mmap.mmap:
        """The memory; `OSError` or `ValueError` if this is not the file that was made."""
        file = os.open(f"/proc/{self.process}/fd/{self.descriptor}", os.O_RDWR)
        try:
            # Sealed: memory that another process could take away would end this one.
            if fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("a file that can be cut")
            if os.fstat(file).st_size != self.length + _TOKEN_BYTES:
                raise ValueError("another file")
            found = os.pread(file, _TOKEN_BYTES, self.length)
            if int.from_bytes(found, "little") != self.token:
                raise ValueError("another file")
            return mmap.mmap(file, self.length)
        finally:
            os.close(file)

    @property
    def is_there(self) -> bool:
        """Whether its maker still has it: descriptors, and process numbers, are used again."""
        try:
            self.open().close()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """For the maker: nobody else is to open it."""
        os.close(self.descriptor)


def can_share() -> bool:
    """Whether processes of this machine can talk through memory."""
    return sys.platform == "linux" and platform.machine() in _ORDERED


def create(length: int) -> MemoryFile:
    """A file of zeros, which takes memory only where it is written to."""
    file = os.memfd_create("flambeau", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    token = secrets.token_bytes(_TOKEN_BYTES - 1)
    os.ftruncate(file, length + _TOKEN_BYTES)
    os.pwrite(file, token, length)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return MemoryFile(os.getpid(), file, int.from_bytes(token, "little"), length)
