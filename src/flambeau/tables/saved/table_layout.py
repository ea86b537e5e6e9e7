"""The layout of a safetensors file, for files that are written and read in pieces."""

import json
import math
import mmap
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from flambeau.checkpoint.manifest import FileEntry
from flambeau.errors import CheckpointError
from flambeau.tables.saved.checksums import BLOCK, CHECKSUMS, Sums, combined, count_blocks

#: The numpy type for each type of tensor; halves as their bits.
NUMPY: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.uint16),
    "BF16": np.dtype(np.uint16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "I8": np.dtype(np.int8),
}

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000


@final
@dataclass(frozen=True)
class Region:
    """Location of a tensor in a file: its safetensors type, its shape, and its first byte."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def numpy(self) -> np.dtype[Any]:
        """Type of its numbers in memory."""
        return NUMPY[self.dtype]

    @property
    def stop(self) -> int:
        """The byte after its last."""
        return self.start + math.prod(self.shape) * self.numpy.itemsize

    def row(self, number: int) -> int:
        """Return the first byte of a row."""
        return self.start + number * math.prod(self.shape[1:]) * self.numpy.itemsize

    def view(self, memory: mmap.mmap) -> np.ndarray[Any, Any]:
        """Return the tensor in a mapped file as an array, without a copy."""
        count = math.prod(self.shape)
        return np.frombuffer(memory, self.numpy, count, self.start).reshape(self.shape)


def lay_out(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, dict[str, Region]]:
    """Lay out a file with tensors of these types and shapes; return its header and their regions.

    The checksums of their blocks become one more tensor, the first.
    """
    sizes = (math.prod(shape) * NUMPY[dtype].itemsize for dtype, shape in tensors.values())
    sums = ("I64", (1 + sum(map(count_blocks, sizes)),))
    # The widest first, after a header of a multiple of 8 bytes: so each is aligned.
    ordered = sorted(
        {CHECKSUMS: sums, **tensors}.items(), key=lambda item: -NUMPY[item[1][0]].itemsize
    )
    regions: dict[str, Region] = {}
    stop = 0
    for name, (dtype, shape) in ordered:
        regions[name] = Region(dtype, shape, stop)
        stop = regions[name].stop
    header = _header(regions)
    return header, {name: _moved(region, len(header)) for name, region in regions.items()}


def seal(
    header: bytes, regions: Mapping[str, Region], sums: Mapping[str, Sums]
) -> tuple[Sums, FileEntry]:
    """Return the content of the tensor of checksums, and the size and checksum of the file.

    `sums` are the checksums of the blocks of all other tensors.
    """
    ordered = sorted(regions.keys() - {CHECKSUMS}, key=lambda name: regions[name].start)
    content = np.concatenate([[zlib.crc32(header)], *(sums[name] for name in ordered)])
    content = content.astype(np.int64)
    assert content.shape == regions[CHECKSUMS].shape, "all blocks have a checksum"
    parts = [(zlib.crc32(header), len(header)), (zlib.crc32(content.data), content.nbytes)]
    for name in ordered:
        size = regions[name].stop - regions[name].start
        lengths = (min(BLOCK, size - start) for start in range(0, size, BLOCK))
        parts += zip(sums[name].tolist(), lengths, strict=True)
    return content, FileEntry(size=sum(length for _, length in parts), crc32=combined(parts))


def read_layout(file: BinaryIO, path: Path) -> dict[str, Region]:
    """Return where the tensors of an open file are; raise `CheckpointError` if it is incomplete."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if length > _LONGEST_HEADER:
        raise CheckpointError(f"{path} is not a safetensors file")
    begin = _LENGTH_BYTES + length
    if size < begin:
        raise CheckpointError(f"{path} is truncated: it ends within its header, at byte {size}")
    regions = {name: _moved(region, begin) for name, region in _parse(file.read(length), path)}
    stop = max((region.stop for region in regions.values()), default=begin)
    if size != stop:
        raise CheckpointError(
            f"{path} has {size} bytes instead of {stop}: it is truncated or damaged"
        )
    return regions


def _parse(header: bytes, path: Path) -> list[tuple[str, Region]]:
    try:
        entries = json.loads(header)
        return [(name, _region(entries[name])) for name in entries if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file, or its header is damaged: {error}"
        ) from error


def _moved(region: Region, by: int) -> Region:
    return replace(region, start=region.start + by)


def _header(regions: Mapping[str, Region]) -> bytes:
    entries = {
        name: {
            "dtype": region.dtype,
            "shape": list(region.shape),
            "data_offsets": [region.start, region.stop],
        }
        for name, region in regions.items()
    }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _region(entry: Mapping[str, Any]) -> Region:
    start, stop = entry["data_offsets"]
    region = Region(entry["dtype"], tuple(entry["shape"]), start)
    numbers = (start, *region.shape)
    sound = region.dtype in NUMPY and all(type(n) is int and n >= 0 for n in numbers)
    if not sound or region.stop != stop:
        raise ValueError(f"a tensor {entry}")
    return region
