"""Memory-mapped files, which the kernel reads on access."""

import mmap

from flambeau.errors import DataError


def map_file(path: str) -> mmap.mmap:
    """Map the bytes of a file, read-only; they stay valid after the file is removed."""
    try:
        with open(path, "rb") as file:
            return map_descriptor(file.fileno())
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}") from error


def map_descriptor(descriptor: int) -> mmap.mmap:
    """Map an open descriptor, read-only; the descriptor may be closed afterwards."""
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
