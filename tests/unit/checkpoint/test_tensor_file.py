"""Tensors in a file that the safetensors library reads."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flambeau.checkpoint.tensor_file import read_tensors, require_savable, write_tensors
from flambeau.errors import CheckpointError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64,
    torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def test_every_dtype_is_read_by_the_library_as_it_was(tmp_path: Path) -> None:
    tensors = {str(dtype): torch.tensor([0, 1, 2]).to(dtype) for dtype in DTYPES}
    write_tensors(tmp_path / "file", tensors)
    loaded = load_file(tmp_path / "file")
    assert {name: tensor.dtype for name, tensor in loaded.items()} == {
        name: tensor.dtype for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(3.0).expand(2, 3),
        torch.arange(10.0)[2:7],
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(2, requires_grad=True),
    ],
    ids=["0-dim", "empty", "transposed", "expanded", "view", "channels-last", "requires-grad"],
)
def test_any_shape_and_stride(tmp_path: Path, tensor: torch.Tensor) -> None:
    entry = write_tensors(tmp_path / "file", {"byte": torch.zeros(1).bool(), "a": tensor})
    assert torch.equal(read_tensors(tmp_path / "file", entry)["a"], tensor)


def test_no_tensors(tmp_path: Path) -> None:
    assert read_tensors(tmp_path / "file", write_tensors(tmp_path / "file", {})) == {}


def test_what_was_read_does_not_depend_on_the_file(tmp_path: Path) -> None:
    entry = write_tensors(tmp_path / "file", {"a": torch.ones(5000)})
    first = read_tensors(tmp_path / "file", entry)["a"]
    first.zero_()
    assert read_tensors(tmp_path / "file", entry)["a"].sum() == 5000


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
        (torch.zeros(2, device="meta"), "meta"),
        ("text", "a str, not a tensor"),
    ],
)
def test_what_no_file_can_hold_is_named(value: object, problem: str) -> None:
    with pytest.raises(CheckpointError, match=rf"layer\.weight .*{problem}"):
        require_savable({"fine": torch.ones(1), "layer.weight": value})
