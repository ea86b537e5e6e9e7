"""TorchScript modules: read from files, written to files, and sent to other processes."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch

from flambeau.checkpoint.durable import write_atomically
from flambeau.errors import ModelError


@contextmanager
def without_deprecation() -> Iterator[None]:
    """Suppress the warning that TorchScript is deprecated: Angel's files have no other format."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"`torch\.jit\.(script|load|save)` is deprecated", DeprecationWarning
        )
        yield


def read(path: str | Path) -> Any:
    """Return the scripted module in a file; raise `ModelError` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"the model file {path} cannot be read: {error.strerror}") from error
    try:
        return from_bytes(data)
    except RuntimeError as error:
        raise ModelError(
            f"{path} is not a TorchScript file: it must come from torch.jit.save, or from "
            f"'flambeau angel make' ({str(error).splitlines()[0]})"
        ) from error


def from_bytes(data: bytes) -> Any:
    """Return the scripted module from the result of `to_bytes`."""
    with without_deprecation():
        return torch.jit.load(io.BytesIO(data), map_location="cpu")  # type: ignore[no-untyped-call]


def to_bytes(scripted: Any) -> bytes:
    """Return the content of a scripted module's file."""
    buffer = io.BytesIO()
    with without_deprecation():
        torch.jit.save(scripted, buffer)
    return buffer.getvalue()


def write(scripted: Any, path: str | Path) -> None:
    """Write a scripted module; the file appears when it is complete."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), to_bytes(scripted))


def compiled(module: torch.nn.Module) -> Any:
    """Return a module compiled to TorchScript."""
    with without_deprecation():
        return torch.jit.script(module)


@final
class Scripted:
    """Picklable holder of a scripted module, whose parameters do not become its owner's."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __reduce__(self) -> tuple[Callable[[bytes], "Scripted"], tuple[bytes]]:
        return _unpacked, (to_bytes(self.module),)


def _unpacked(data: bytes) -> Scripted:
    return Scripted(from_bytes(data))
