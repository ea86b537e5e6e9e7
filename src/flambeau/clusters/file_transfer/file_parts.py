"""Files in pieces that fit into messages, and names that both sides know."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flambeau.coordination.file_messages import FilePart

PART_BYTES = 8 << 20
#: Where agents find the run that this one starts from, below their own.
INIT = "init"
#: The file by which agents know the driver's run directory.
TOKEN = ".token"


def sees(run_dir: str, token: str) -> bool:
    """Whether this is the directory in which the driver has left its token."""
    try:
        return (Path(run_dir) / TOKEN).read_text(encoding="ascii") == token
    except OSError:
        return False


def parts_of(root: Path, path: Path) -> Iterator[tuple[FilePart, memoryview]]:
    """Return a file, piece by piece, named by its place below `root`.

    The pieces are mapped: those that wait to be sent, perhaps to many, take no memory.
    """
    name = path.relative_to(root).as_posix()
    size = path.stat().st_size
    if not size:
        yield FilePart(name, 0), memoryview(b"")
        return
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    for start in range(0, size, PART_BYTES):
        yield FilePart(name, start), data[start : start + PART_BYTES]


def below(root: Path, name: str) -> Path:
    """A place below `root`, and nowhere else."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise ValueError(f"{name} is not below {root}")
    return root / name


def write_part(root: Path, part: FilePart, data: Any) -> None:
    """Put a piece into its place; nothing outside `root` is touched."""
    path = below(root, part.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if part.start else "wb") as file:
        file.seek(part.start)
        file.write(data)
