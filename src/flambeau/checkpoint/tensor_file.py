"""Tensors in one safetensors file, written as a stream with its checksum.

The library's own writer makes a temporary file and renames it, which object stores do not support,
and it refuses tensors that share memory.
"""

import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from flambeau.checkpoint.durable import sync
from flambeau.checkpoint.manifest import FileEntry
from flambeau.checkpoint.soundness import verify_file
from flambeau.errors import CheckpointError

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def require_savable(tensors: Mapping[str, object]) -> None:
    """Raise `CheckpointError` naming the first tensor that a file cannot hold."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            problem = f"a {type(tensor).__name__}, not a tensor"
        elif tensor.dtype not in _DTYPES:
            problem = f"of dtype {tensor.dtype}"
        elif tensor.layout != torch.strided or tensor.is_meta:
            problem = f"{'meta' if tensor.is_meta else tensor.layout}: only dense tensors are saved"
        else:
            continue
        raise CheckpointError(f"{name} cannot be saved in a checkpoint: it is {problem}")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write a new file and wait until it is on the disk; return its size and checksum."""
    assert sys.byteorder == "little", "the format is little-endian"
    size = checksum = 0
    with path.open("wb") as file:
        for part in _parts(tensors):
            file.write(part)
            size += len(part)
            checksum = zlib.crc32(part, checksum)
        sync(file)
    return FileEntry(size=size, crc32=checksum)


def read_tensors(path: Path, expected: FileEntry) -> dict[str, Tensor]:
    """Return copies of the tensors of a file; raise `CheckpointError` if it is not as expected."""
    try:
        verify_file(path, expected)
        # Cloned, since they are views of the mapped file, which may be removed or remote.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _parts(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    # Widest first, after a header whose size is a multiple of 8 bytes, so that all are aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    yield _header(ordered)
    for _, tensor in ordered:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


def _header(tensors: list[tuple[str, Tensor]]) -> bytes:
    entries = {}
    start = 0
    for name, tensor in tensors:
        stop = start + tensor.numel() * tensor.element_size()
        shape, dtype = list(tensor.shape), _DTYPES[tensor.dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
