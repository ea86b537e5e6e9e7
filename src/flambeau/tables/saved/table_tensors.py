"""The tensors of a table's file: their types and shapes."""

from collections.abc import Mapping
from pathlib import Path

from flambeau.config.tables import TableSpec
from flambeau.errors import CheckpointError
from flambeau.tables.saved.checksums import CHECKSUMS
from flambeau.tables.saved.table_layout import Region
from flambeau.tables.saved.table_slots import capacity_for

#: The tensors with a row for each id.
ROW_BY_ROW = frozenset({"ids", "values", "state", "seen"})

_STORED = {"fp64": "F64", "fp32": "F32", "fp16": "F16", "bf16": "BF16"}
#: The permitted types and the number of dimensions of each tensor.
_ALLOWED = {
    "ids": (("I64",), 1),
    "values": (tuple(_STORED.values()), 2),
    "state": (("F32", "F64"), 2),
    "seen": (("U32",), 1),
    "removed": (("I64",), 1),
    "slots": (("I32",), 1),
    CHECKSUMS: (("I64",), 1),
}
_OPTIONAL = ("seen", "removed", CHECKSUMS)


def tensors_of(
    spec: TableSpec, rows: int, state_width: int, *, seen: bool, removed: int | None
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type and shape of each tensor of a table's file, without the checksums."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "ids": ("I64", (rows,)),
        "values": (_STORED[spec.dtype], (rows, spec.dim)),
        "state": ("F64" if spec.dtype == "fp64" else "F32", (rows, state_width)),
        "slots": ("I32", (capacity_for(rows),)),
    }
    if seen:
        tensors["seen"] = ("U32", (rows,))
    if removed is not None:
        tensors["removed"] = ("I64", (removed,))
    return tensors


def dtype_of(values: Region) -> str:
    """Return the `TableSpec.dtype` of the values in a file."""
    return next(name for name, stored in _STORED.items() if stored == values.dtype)


def require_table(regions: Mapping[str, Region], path: Path) -> None:
    """Raise `CheckpointError` unless the tensors are those of a table."""
    missing = [name for name in _ALLOWED if name not in regions and name not in _OPTIONAL]
    if missing:
        raise CheckpointError(f"{path} is not a table: it has no tensor '{missing[0]}'")
    unknown = sorted(regions.keys() - _ALLOWED.keys())
    if unknown:
        raise CheckpointError(
            f"{path} has a tensor '{unknown[0]}': its header is damaged, or it is too new"
        )
    rows = regions["ids"].shape[0] if regions["ids"].shape else 0
    for name in [name for name in _ALLOWED if name in regions]:
        region = regions[name]
        if not _fits(name, region, rows):
            found = f"{region.dtype} {list(region.shape)}"
            raise CheckpointError(f"{path} is not a table: '{name}' is {found} for {rows} ids")


def _fits(name: str, region: Region, rows: int) -> bool:
    dtypes, dimensions = _ALLOWED[name]
    if region.dtype not in dtypes or len(region.shape) != dimensions:
        return False
    if name == "slots":
        return region.shape[0] > rows
    return name not in ROW_BY_ROW or region.shape[0] == rows
