"""A tree of values (see `tree`) in one safetensors file."""

import json
from pathlib import Path
from typing import Any

import torch

from flambeau.checkpoint.manifest import FileEntry
from flambeau.checkpoint.tensor_file import read_tensors, require_savable, write_tensors
from flambeau.checkpoint.tree import flatten, unflatten
from flambeau.errors import CheckpointError

#: Name of the tensor that holds the JSON part of the tree.
_TREE = "tree"


def write_tree(path: Path, tree: Any) -> FileEntry:
    """Write a tree and wait until it is on the disk; return its size and checksum."""
    values, tensors = flatten(tree)
    require_savable(tensors)
    text = bytearray(json.dumps(values, allow_nan=False).encode())
    return write_tensors(path, {**tensors, _TREE: torch.frombuffer(text, dtype=torch.uint8)})


def read_tree(path: Path, expected: FileEntry) -> Any:
    """Return the tree in a file; raise `CheckpointError` if the file is not as expected."""
    tensors = read_tensors(path, expected)
    try:
        values = json.loads(tensors.pop(_TREE).numpy().tobytes())
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is corrupt: it holds no tree ({error})") from error
    return unflatten(values, tensors)
