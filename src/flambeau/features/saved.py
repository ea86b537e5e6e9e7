"""A fitted pipeline in a folder: JSON, and a Parquet file for each table of statistics.

The file of a vocabulary has the columns `value`, `count` and `id`, in the order of ids, from 1.
"""

import base64
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from flambeau.checkpoint.durable import write_atomically
from flambeau.errors import ConfigError, DataError
from flambeau.features.operation import Operation, State
from flambeau.features.stored_state import StoredState, batches_of, schema_of, write_pieces

FILE = "pipeline.json"
VERSION = 1
#: Columns of a vocabulary; ids, the order of its rows, are only in its file.
_VOCABULARY = ("value", "count")
#: Tables of a pipeline whose files have more bytes than this stay in their files.
_HELD_BYTES = 64 << 20


def save(
    folder: Path,
    operations: Sequence[Operation],
    schema: pa.Schema,
    states: Sequence[State],
    format: str | None = None,
) -> None:
    """Write a fitted pipeline to a folder; an existing pipeline is replaced as a whole."""
    if folder.exists() and not (folder / FILE).exists() and any(folder.iterdir()):
        raise DataError(f"{folder} has files that are not those of a pipeline; give a new folder")
    partial = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    replaced = partial.with_name(f"{partial.name}-replaced")
    partial.mkdir(parents=True)
    try:
        described = []
        for number, (operation, state) in enumerate(zip(operations, states, strict=True)):
            files = {
                name: f"{number:02}-{operation.kind}-{index}.parquet"
                for index, name in enumerate(state)
            }
            for name, file in files.items():
                _write(operation, state, name, partial / file)
            described.append({**operation.dump(), "tables": files})
        values = {
            "version": VERSION,
            "format": format,
            "columns": {field.name: str(field.type) for field in schema},
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode("ascii"),
            "operations": described,
        }
        write_atomically(partial / FILE, json.dumps(values, indent=1).encode())
        if folder.exists():
            os.replace(folder, replaced)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)


def load(
    folder: Path, *, trust: bool = False
) -> tuple[tuple[Operation, ...], pa.Schema, tuple[State, ...], str | None]:
    """Return the operations, the schema they were fitted on, their states and the file format.

    `trust` allows operations that run user code.
    """
    try:
        values = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        raise DataError(f"there is no pipeline in {folder}: {FILE} is missing") from None
    except ValueError as error:
        raise DataError(f"{folder / FILE} is damaged: {error}") from None
    if values.get("version") != VERSION:
        raise DataError(f"{folder / FILE} has version {values.get('version')}; {VERSION} is known")
    operations, states = [], []
    for described in values["operations"]:
        files = described.pop("tables")
        operations.append(operation := Operation.load(described))
        if operation.runs_code and not trust:
            raise ConfigError(
                f"{folder} holds a pipeline with the operation '{operation}', which runs code. If "
                "you trust its author, load it with trust=True: the code then runs with your rights"
            )
        columns = _VOCABULARY if operation.numbers_values else None
        states.append(StoredState({n: folder / file for n, file in files.items()}, None, columns))
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"])))
    return tuple(operations), schema, _in_memory(states), values.get("format")


def format_of(folder: Path) -> str | None:
    """Return the format that a saved pipeline assumes for files that do not identify their own."""
    found: str | None = json.loads((folder / FILE).read_bytes()).get("format")
    return found


def _write(operation: Operation, state: State, name: str, path: Path) -> None:
    columns = _VOCABULARY if operation.numbers_values else None
    if isinstance(state, StoredState) and state.copy(name, path, columns):
        return
    pieces, schema = batches_of(state, name, columns), schema_of(state, name)
    if operation.numbers_values:
        pieces, schema = _numbered(pieces), schema.append(pa.field("id", pa.int64()))
    write_pieces(pieces, schema, path)


def _numbered(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add ids, from 1, to the values of a vocabulary."""
    first = 1
    for piece in pieces:
        yield piece.append_column("id", pa.array(np.arange(first, first + piece.num_rows)))
        first += piece.num_rows


def _in_memory(states: Sequence[StoredState]) -> tuple[State, ...]:
    """Load tables into memory; if they are large, leave them in files until they are accessed."""
    if sum(state.file_bytes for state in states) > _HELD_BYTES:
        return tuple(states)
    return tuple(dict(state) for state in states)
