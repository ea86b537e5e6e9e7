"""Content of an export's `binding.json`, with its reader and writer."""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from flambeau.checkpoint.durable import write_atomically
from flambeau.checkpoint.manifest import FileEntry, checksum_of
from flambeau.config import Binding, Images
from flambeau.config.settings import Settings
from flambeau.data.parameters import is_batch
from flambeau.errors import ConfigError, DataError
from flambeau.inference.lookup_calls import Lookup

BINDING = "binding.json"
#: Folder in an export with the pipeline of its features.
FEATURES = "features"
VERSION = 1


class Parameter(Settings):
    """A parameter of forward(): its kind, whether it is required, and whether it is a batch."""

    name: str
    kind: str
    required: bool
    batch: bool = False


class GraphInput(Settings):
    """An input of the graph: the result of a lookup (or its mask or squares), or an argument.

    `missing` is the id that stands for a missing one, if the argument may have missing ids.
    """

    name: str
    lookup: int | None = None
    mask: bool = False
    squares: bool = False
    argument: str | None = None
    missing: int | None = None
    dtype: str
    shape: tuple[int | None, ...]


class GraphFile(Settings):
    """The graph: its file, its inputs and its outputs."""

    format: Literal["pt2", "onnx", "torch", "torchscript"]
    file: str
    digest: str
    lookups: Literal["none", "inside", "outside"]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    output: Literal["tensor", "tuple", "dict"]


class TableEntry(Settings):
    """A table: its file, how values are stored, and the `default` row of ids without a row."""

    file: str
    rows: int
    removed: int = 0
    dim: int
    values: Literal["fp32", "fp64", "bf16", "int8"]
    default: tuple[float, ...]


class Since(Settings):
    """The base of a delta: another export, identified by `id`, or a checkpoint of a run."""

    folder: str
    id: str
    checkpoint: str | None = None


class Bound(Settings):
    """Binding of columns to the model, and the meaning of its output.

    `columns` has the kind of the columns that the model was trained with (floats, integers or
    texts, or lists of them). `positional` are the columns that are passed to forward() by position.
    If `features`, the digest of a pipeline in the export, is set, columns are raw ones, from which
    the pipeline makes those that the binding names.
    """

    binding: Binding
    forward: tuple[Parameter, ...]
    positional: tuple[str, ...] = ()
    columns: dict[str, str]
    features: str | None = None
    dtype: str
    images: Images | None = None
    loss: str | dict[str, str | None] | None = None


class ExportDescription(Bound):
    """An export: its identity, its graph, its lookups and tables, and the base of a delta.

    `weights` are the shapes of the model's weights by name, without tables. `files` are the size
    and checksum of every other file of the folder; None if it was written before exports had
    checksums.
    """

    version: int = VERSION
    flambeau: str
    torch: str
    id: str
    created: float
    run: str
    checkpoint: str
    graph: GraphFile
    graph_here: bool = True
    lookups: tuple[Lookup, ...] = ()
    tables: dict[str, TableEntry]
    weights: Mapping[str, tuple[int, ...]] = {}
    since: Since | None = None
    files: dict[str, FileEntry] | None = None

    def write(self, folder: Path) -> None:
        """Write `binding.json`, including its own checksum."""
        values = self.model_dump(mode="json")
        text = json.dumps(values | {"crc32": checksum_of(values)}, indent=1)
        write_atomically(folder / BINDING, text.encode())


def is_export(folder: Path) -> bool:
    """Return whether there is an export at this place."""
    return (folder / BINDING).is_file()


def read_description(folder: Path) -> ExportDescription:
    """Return the description of an export; raise `DataError` if it is missing or damaged."""
    path = folder / BINDING
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{folder} is not an export: it has no {BINDING}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if isinstance(values, dict) and values.get("version") != VERSION:
        raise DataError(
            f"{path} has version {values.get('version')!r}, and this Flambeau reads {VERSION}; "
            "export the run again"
        )
    checksum = values.pop("crc32", None) if isinstance(values, dict) else None
    if checksum is not None and checksum != checksum_of(values):
        raise DataError(f"{path} is damaged: its checksum is wrong; copy or export it again")
    try:
        found = ExportDescription.parse(values, str(path))
    except ConfigError as error:
        raise DataError(f"{error}") from error
    tables = (table.file for table in found.tables.values())
    for file in (found.graph.file, *tables, *(found.files or ())):
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise DataError(f"{path} names {file}, which is not in its folder")
    return found


def described_parameters(forward: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a forward()."""
    return tuple(
        Parameter(
            name=name,
            kind=parameter.kind.name,
            required=parameter.default is parameter.empty,
            batch=is_batch(parameter.annotation),
        )
        for name, parameter in inspect.signature(forward).parameters.items()
    )


def like_forward(parameters: tuple[Parameter, ...]) -> Callable[..., Any]:
    """Return a function with the parameters of a forward(), for a binder; it is never called."""

    def forward(*positional: Any, **named: Any) -> None:
        """Do nothing: only the signature is used."""

    empty = inspect.Parameter.empty
    made = [
        inspect.Parameter(
            each.name,
            getattr(inspect.Parameter, each.kind),
            default=empty if each.required else None,
            annotation="Batch" if each.batch else empty,
        )
        for each in parameters
    ]
    forward.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    return forward
