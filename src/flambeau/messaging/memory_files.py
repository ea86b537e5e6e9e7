"""Shared memory of processes on one machine: unnamed files that end with their last process."""

import fcntl
import mmap
import os
import platform
import secrets
import sys

import msgspec

#: Architectures on which other processes see stores in the order in which they were made. Buffers
#: go through sockets on all others.
_ORDERED = ("x86_64", "AMD64")
_TOKEN_BYTES = 8
_SEALS = 0 if sys.platform != "linux" else fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class MemoryFile(msgspec.Struct, frozen=True, array_like=True):
    """Location of the file. Process numbers are valid on one machine only, hence the token."""

    process: int
    descriptor: int
    token: int
    length: int

    def open(self) -> mmap.mmap:
        """Return the mapped memory; raise `OSError` or `ValueError` if this is another file."""
        file = os.open(f"/proc/{self.process}/fd/{self.descriptor}", os.O_RDWR)
        try:
            # Sealed: a file that another process could truncate would crash this one.
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
        """Whether its creator still has it; descriptors and process numbers may be reused."""
        try:
            self.open().close()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """Close the creator's descriptor, so that no other process can open the file."""
        os.close(self.descriptor)


def can_share() -> bool:
    """Return whether processes of this machine can share memory."""
    return sys.platform == "linux" and platform.machine() in _ORDERED


def create(length: int) -> MemoryFile:
    """Create a file of zeros, which uses memory only where it is written to."""
    file = os.memfd_create("flambeau", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    token = secrets.token_bytes(_TOKEN_BYTES - 1)
    os.ftruncate(file, length + _TOKEN_BYTES)
    os.pwrite(file, token, length)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return MemoryFile(os.getpid(), file, int.from_bytes(token, "little"), length)
