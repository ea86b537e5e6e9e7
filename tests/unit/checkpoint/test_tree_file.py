"""A tree of values in one file."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from flambeau.checkpoint.manifest import FileEntry
from flambeau.checkpoint.tensor_file import write_tensors
from flambeau.checkpoint.tree_file import read_tree, write_tree
from flambeau.errors import CheckpointError


def round_trip(path: Path, tree: Any) -> Any:
    return read_tree(path, write_tree(path, tree))


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        [1, "two", 3.5, None, b"\x00\xff", (True, [])],
        {"a": {1: "one", "1": "text"}},
        {"limit": math.inf},
    ],
)
def test_values_come_back_as_they_were(tmp_path: Path, tree: Any) -> None:
    assert round_trip(tmp_path / "file", tree) == tree


def test_tensors_come_back_in_their_places(tmp_path: Path) -> None:
    values, counts = torch.randn(3, 2, dtype=torch.float64), torch.arange(5)
    back = round_trip(tmp_path / "file", {"dense": [values], "tables": {"user": (counts, "x")}})
    assert torch.equal(back["dense"][0], values)
    assert torch.equal(back["tables"]["user"][0], counts)
    assert back["tables"]["user"][1] == "x"


def test_a_key_named_like_the_file_s_own_tensor_is_a_key(tmp_path: Path) -> None:
    back = round_trip(tmp_path / "file", {"tree": torch.ones(2), "state": torch.zeros(3)})
    assert torch.equal(back["tree"], torch.ones(2))
    assert torch.equal(back["state"], torch.zeros(3))


def test_a_tree_may_be_a_tensor_alone(tmp_path: Path) -> None:
    assert torch.equal(round_trip(tmp_path / "file", torch.ones(2)), torch.ones(2))


def test_the_library_reads_the_tensors(tmp_path: Path) -> None:
    write_tree(tmp_path / "file", {"a": torch.ones(2)})
    assert torch.equal(load_file(tmp_path / "file")["state.a"], torch.ones(2))


def test_the_entry_says_what_the_file_is(tmp_path: Path) -> None:
    entry = write_tree(tmp_path / "file", {"a": 1})
    assert entry.size == (tmp_path / "file").stat().st_size


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"hook": print}, r"state\.hook cannot be saved"),
        ({"a": torch.eye(2).to_sparse()}, r"state\.a cannot be saved .*sparse"),
    ],
)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(
    tmp_path: Path, tree: Any, problem: str
) -> None:
    with pytest.raises(CheckpointError, match=problem):
        write_tree(tmp_path / "file", tree)
    assert not (tmp_path / "file").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="file is missing"):
        read_tree(tmp_path / "file", FileEntry(size=1, crc32=0))


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    entry = write_tree(path, {"a": torch.ones(2)})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt: its checksum is wrong"):
        read_tree(path, entry)


@pytest.mark.parametrize(
    "tensors", [{}, {"tree": torch.tensor(list(b"{nothing"), dtype=torch.uint8)}]
)
def test_a_file_that_holds_no_tree_is_named(tmp_path: Path, tensors: Any) -> None:
    entry = write_tensors(tmp_path / "file", tensors)
    with pytest.raises(CheckpointError, match="file is corrupt: it holds no tree"):
        read_tree(tmp_path / "file", entry)
