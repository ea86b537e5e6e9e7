"""TorchScript modules: from files, to files, and from process to process."""

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
    """TorchScript is deprecated, but Angel's files are nothing else: that warning is not shown."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"`torch\.jit\.(script|load|save)` is deprecated", DeprecationWarning
        )
        yield


def read(path: str | Path) -> Any:
    """The scripted module in a file."""
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
    """The scripted module that `to_bytes` was given."""
    with without_deprecation():
        return torch.jit.load(io.BytesIO(data), map_location="cpu")  # type: ignore[no-untyped-call]


def to_bytes(scripted: Any) -> bytes:
    """A scripted module as the contents of a file."""
    buffer = io.BytesIO()
    with without_deprecation():
        torch.jit.save(scripted, buffer)
    return buffer.getvalue()


def write(scripted: Any, path: str | Path) -> None:
    """Write a scripted module; the file appears when it is complete."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), to_bytes(scripted))


def compiled(module: torch.nn.Module) -> Any:
    """A module as TorchScript."""
    with without_deprecation():
        return torch.jit.script(module)


@final
class Scripted:
    """Holds a scripted module: its parameters are not those of who holds it, and it can travel."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __reduce__(self) -> tuple[Callable[[bytes], "Scripted"], tuple[bytes]]:
        return _unpacked, (to_bytes(self.module),)


def _unpacked(data: bytes) -> Scripted:
    return Scripted(from_bytes(data))
