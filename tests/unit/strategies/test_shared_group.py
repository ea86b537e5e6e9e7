"""Workers that add up in shared memory; here they are threads, which wait for each other alike."""

import mmap
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flambeau.errors import JobFailedError
from flambeau.strategies import shared_group
from flambeau.strategies.group import Group
from flambeau.strategies.shared_group import SharedGroup, shared_if_possible

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]


class Ranked(Group):
    """Knows who it is, and what was asked of it."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.asked: list[str] = []

    def sum(self, tensor: Tensor) -> Tensor:
        self.asked.append("sum")
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        self.asked.append("broadcast")
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        self.asked.append("gather")
        return [data]


def groups(size: int) -> list[SharedGroup]:
    length = shared_group._first_place(size) + 2 * size * shared_group.PIECE_BYTES
    memory = mmap.mmap(-1, length)
    return [SharedGroup(Ranked(rank, size), memory) for rank in range(size)]


def summed(all_parts: list[list[Tensor]]) -> list[list[Tensor]]:
    """What each worker gets for its tensors, one sum after the other."""

    def work(group: SharedGroup, parts: list[Tensor]) -> list[Tensor]:
        return [group.sum(part) for part in parts]

    with ThreadPoolExecutor(len(all_parts)) as pool:
        return list(pool.map(work, groups(len(all_parts)), all_parts))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_group, "PIECE_BYTES", 4096)
    monkeypatch.setattr(shared_group, "FEW_BYTES", 64)


@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(2, 5),
    counts=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    kind=st.sampled_from(TYPES),
)
def test_all_get_the_same_sum(workers: int, counts: list[int], kind: torch.dtype) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_group, "PIECE_BYTES", 4096)
        patch.setattr(shared_group, "FEW_BYTES", 64)
        generator = torch.Generator().manual_seed(len(counts))
        parts = [
            [torch.randint(0, 9, (count,), generator=generator).to(kind) for count in counts]
            for _ in range(workers)
        ]
        wanted = [torch.stack(each).sum(0, dtype=kind) for each in zip(*parts, strict=True)]
        for found in summed(parts):
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [2, 5])
def test_sums_of_fractions_are_the_same_to_the_last_bit(workers: int) -> None:
    parts = [[torch.rand(50, 100)] for _ in range(workers)]
    first, *others = summed(parts)
    assert first[0].shape == (50, 100)
    assert all(torch.equal(first[0], other[0]) for other in others)


@pytest.mark.usefixtures("small_pieces")
def test_one_after_the_other_for_long() -> None:
    parts = [[torch.full((30,), float(rank + k)) for k in range(500)] for rank in range(3)]
    for found in summed(parts):
        assert [float(each[7]) for each in found] == [3.0 * k + 3 for k in range(500)]


def test_what_is_not_a_sum_is_left_to_others() -> None:
    group = groups(2)[0]
    group.broadcast(torch.ones(1))
    group.gather(b"")
    group.sum(torch.ones(4, 4).t()[1:])  # whose numbers are not side by side
    assert group._within.asked == ["broadcast", "gather", "sum"]  # type: ignore[attr-defined]


def test_whoever_waits_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_group, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(JobFailedError, match="no message from another worker"):
        groups(2)[0].sum(torch.ones(3))


class Alone(Ranked):
    """One of two; the other has answered that it cannot, or that it can."""

    def __init__(self, answer: int) -> None:
        super().__init__(0, 2)
        self._answer = answer

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor + self._answer


@pytest.mark.parametrize(("answer", "kind"), [(1, SharedGroup), (0, Alone)])
def test_only_if_all_see_the_memory(answer: int, kind: type) -> None:
    before = os.listdir("/proc/self/fd")
    assert isinstance(shared_if_possible(Alone(answer)), kind)
    assert os.listdir("/proc/self/fd") == before


def test_a_machine_that_reorders_stores_has_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert isinstance(shared_if_possible(Alone(1)), Alone)


def test_another_file_is_not_taken_for_ours() -> None:
    class Elsewhere(Alone):
        def broadcast(self, tensor: Tensor) -> Tensor:
            return tensor + torch.tensor([0, 0, 1])  # another token

    assert isinstance(shared_if_possible(Elsewhere(1)), Elsewhere)
