from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from fake_coordinator import PATIENCE, FakeCoordinator

from flambeau.coordination.task_messages import Contribution, Gathered
from flambeau.errors import RequestTimeoutError
from flambeau.strategies import coordinator_group
from flambeau.strategies.coordinator_group import CoordinatorGroup

WORKERS = 3


class Topology:
    """Workers whose exchanges are put together here."""

    def __init__(self) -> None:
        self.links = [FakeCoordinator(rank, WORKERS) for rank in range(WORKERS)]
        self.parts: dict[str, dict[int, bytes]] = {}
        for coordinator in self.links:
            coordinator.answer = self.contribute
        links: list[Any] = self.links
        self.groups = [CoordinatorGroup(coordinator) for coordinator in links]
        self._pool = ThreadPoolExecutor(WORKERS)
        self.enter(0)

    def enter(self, sync_point: int) -> None:
        for group in self.groups:
            group.enter(sync_point, range(WORKERS))

    def contribute(self, message: Any, buffers: Sequence[Any]) -> None:
        assert isinstance(message, Contribution)
        parts = self.parts.setdefault(message.key, {})
        parts[message.spec.rank] = bytes(buffers[0])
        if len(parts) == WORKERS:
            for coordinator in self.links:
                coordinator.hear(Gathered(message.key), [parts[rank] for rank in sorted(parts)])

    def all(self, act: Callable[[CoordinatorGroup], Any]) -> list[Any]:
        """What each worker gets when all do the same."""
        futures = [self._pool.submit(act, group) for group in self.groups]
        return [future.result(PATIENCE) for future in futures]

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def team() -> Iterator[Topology]:
    team = Topology()
    yield team
    team.close()


def test_everybody_gets_the_bytes_of_all_by_rank(team: Topology) -> None:
    gathered = team.all(lambda group: group.gather(b"x" * group.rank))
    assert gathered == [[b"", b"x", b"xx"]] * WORKERS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_sum_replaces_the_tensor_of_every_worker(team: Topology, dtype: torch.dtype) -> None:
    tensors = [torch.full((2, 2), rank + 1, dtype=dtype) for rank in range(WORKERS)]
    returned = team.all(lambda group: group.sum(tensors[group.rank]))
    for rank, tensor in enumerate(tensors):
        assert returned[rank] is tensor
        assert tensor.dtype is dtype
        assert torch.equal(tensor, torch.full((2, 2), 6, dtype=dtype))


def test_a_sum_is_the_same_to_the_last_bit_on_every_worker(team: Topology) -> None:
    numbers = [1e8, 1.0, -1e8]  # another order would give another sum
    sums = team.all(lambda group: group.sum(torch.tensor([numbers[group.rank]])).item())
    expected = float(torch.tensor(0.0) + numbers[0] + numbers[1] + numbers[2])
    assert sums == [expected] * WORKERS


def test_a_single_number_and_a_view_can_be_summed(team: Topology) -> None:
    assert team.all(lambda group: float(group.sum(torch.tensor(2.0)))) == [6.0] * WORKERS
    views = team.all(lambda group: group.sum(torch.arange(6.0).view(2, 3).t()).tolist())
    assert views[0] == [[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]]


def test_a_broadcast_gives_the_first_workers_tensor(team: Topology) -> None:
    tensors = [torch.tensor([rank, 7 * rank + 1]) for rank in range(WORKERS)]
    team.all(lambda group: group.broadcast(tensors[group.rank]))
    assert [tensor.tolist() for tensor in tensors] == [[0, 1]] * WORKERS


def test_exchanges_are_numbered_anew_in_each_moment(team: Topology) -> None:
    team.all(lambda group: group.gather(b""))
    team.all(lambda group: group.gather(b""))
    team.enter(12)
    team.all(lambda group: group.gather(b""))
    assert list(team.parts) == ["0/0", "0/1", "12/0"]


def test_an_answer_that_came_before_the_question_is_kept(team: Topology) -> None:
    group = team.groups[0]
    team.links[0].hear(Gathered("1/0"), [b"a", b"b", b"c"])
    group.enter(1, range(WORKERS))
    assert group.gather(b"mine") == [b"a", b"b", b"c"]


def test_answers_of_other_sync_points_are_forgotten(team: Topology) -> None:
    team.links[0].hear(Gathered("0/1"), [b"a"])
    team.links[0].hear(Gathered("1/0"), [b"a"])
    team.groups[0].enter(1, range(WORKERS))
    assert list(team.groups[0]._answers) == ["1/0"]


def test_workers_that_are_left_close_ranks(team: Topology) -> None:
    last = team.groups[2]
    assert (last.rank, last.position, last.size) == (2, 2, 3)
    last.enter(1, [0, 2])
    assert (last.rank, last.position, last.size) == (2, 1, 2)


def test_a_worker_that_is_lost_in_an_exchange_is_not_counted(team: Topology) -> None:
    group = team.groups[0]
    team.links[0].hear(Gathered("0/0"), [b"a", b"c"])
    group.gather(b"a")
    assert group.size == 2


def test_the_first_worker_is_the_one_that_writes(team: Topology) -> None:
    assert [group.first for group in team.groups] == [True, False, False]


def test_others_that_do_not_come_are_an_error(
    team: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_group, "EXCHANGE_SECONDS", 0.0)
    with pytest.raises(RequestTimeoutError, match="the other workers did not arrive"):
        team.groups[0].gather(b"")
