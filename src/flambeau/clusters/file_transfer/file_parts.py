"""Files in parts that fit into messages, and names that both sides use."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flambeau.coordination.file_messages import FilePart

PART_BYTES = 8 << 20
#: Where agents find the run that this one starts from, below their own run directory.
INIT = "init"
#: The file by which agents recognise the driver's run directory.
TOKEN = ".token"


def sees(run_dir: str, token: str) -> bool:
    """Return whether this is the directory that contains the driver's token."""
    try:
        return (Path(run_dir) / TOKEN).read_text(encoding="ascii") == token
    except OSError:
        return False


def parts_of(root: Path, path: Path) -> Iterator[tuple[FilePart, memoryview]]:
    """Yield a file in parts, named by its path below `root`.

    The data is memory-mapped: parts that wait to be sent, perhaps to many agents, use no memory.
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
    """Return the path of a name below `root`; raise `ValueError` if it is outside."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise ValueError(f"{name} is not below {root}")
    return root / name


def write_part(root: Path, part: FilePart, data: Any) -> None:
    """Write a part to its place in a file; nothing outside `root` is written."""
    path = below(root, part.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if part.start else "wb") as file:
        file.seek(part.start)
        file.write(data)
