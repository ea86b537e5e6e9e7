from collections.abc import Sequence
from typing import Any

from fake_stage import FakeStage, spec

from flambeau.coordination.roles import RoleSpec
from flambeau.coordination.task_messages import PartAssigned, PartProgress, TaskRequest
from flambeau.driver.parts.part_coordinator import PartCoordinator


class Job:
    """Processes that work on parts; the test sends their messages."""

    def __init__(self, parts: int, workers: int = 2, later: Sequence[Sequence[int]] = ()) -> None:
        self.stage = FakeStage(workers)
        self.rows: list[int] = []
        self.results: list[tuple[int, bytes]] = []
        self.coordinator = PartCoordinator(
            range(parts), self.rows.append, lambda *done: self.results.append(done), later
        )
        self.coordinator.attach(self.stage)
        self.coordinator.begin(0)

    def send(self, message: Any, *buffers: bytes) -> None:
        self.coordinator.handle(b"peer", message, buffers)

    def request(self, rank: int) -> list[int | None]:
        """The parts that a process gets for its request; none: it waits."""
        self.send(TaskRequest(self.stage.members[rank]))
        return self.assigned(rank)

    def assigned(self, rank: int) -> list[int | None]:
        return [message.part for message in self.stage.heard(rank, PartAssigned)]

    def complete(self, rank: int, part: int, rows: int = 10, result: bytes = b"") -> None:
        self.send(PartProgress(self.stage.members[rank], part, rows, complete=True), result)

    def lose(self, rank: int) -> RoleSpec:
        """A process is lost, and another one takes its place; the lost one's spec."""
        lost = self.stage.members[rank]
        self.stage.members[rank] = spec(rank, attempt=lost.attempt + 1)
        self.coordinator.lost(lost)
        return lost


def test_each_part_is_assigned_once_and_all_end_when_all_are_complete() -> None:
    job = Job(parts=3)
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.complete(1, 1, result=b"one")
    assert job.request(1) == [2]
    job.complete(0, 0, result=b"zero")
    assert job.request(0) == []  # part 2 may come back
    job.complete(1, 2, result=b"two")
    assert job.assigned(0) == [None]
    assert job.request(1) == [None]
    assert job.results == [(1, b"one"), (0, b"zero"), (2, b"two")]
    assert job.coordinator.summary() == {"parts": 3}


def test_a_group_waits_until_the_parts_before_are_complete() -> None:
    job = Job(parts=2, later=[[2], [], [3, 4]])
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.complete(0, 0)
    assert job.request(0) == []
    job.complete(1, 1)
    assert job.assigned(0) == [2]
    assert job.request(1) == []
    job.lose(0)
    assert job.assigned(1) == [2]
    job.complete(1, 2)
    assert [job.request(1), job.request(0)] == [[3], [4]]
    job.complete(1, 3)
    job.complete(0, 4)
    assert [job.request(1), job.request(0)] == [[None], [None]]
    assert job.coordinator.summary() == {"parts": 5}


def test_stopping_hands_out_no_later_group() -> None:
    job = Job(parts=1, later=[[1]])
    assert job.request(0) == [0]
    job.coordinator.stop()
    job.complete(0, 0)
    assert job.request(0) == [None]


def test_without_parts_processes_end_at_once() -> None:
    job = Job(parts=0)
    assert [job.request(0), job.request(1)] == [[None], [None]]


def test_the_part_of_a_lost_process_goes_to_one_that_waits() -> None:
    job = Job(parts=2)
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.complete(0, 0)
    assert job.request(0) == []
    job.lose(1)
    assert job.assigned(0) == [1]
    assert job.request(1) == []
    job.complete(0, 1)
    assert job.request(0) == [None]
    assert job.assigned(1) == [None]


def test_the_part_of_a_lost_process_goes_to_the_one_in_its_place() -> None:
    job = Job(parts=4)
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.lose(0)
    assert job.request(0) == [0]


def test_a_lost_process_that_waited_is_assigned_nothing() -> None:
    job = Job(parts=2)
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.complete(0, 0)
    assert job.request(0) == []
    job.lose(0)
    job.lose(1)
    assert job.request(1) == [1]


def test_messages_of_a_replaced_process_change_nothing() -> None:
    job = Job(parts=1, workers=1)
    assert job.request(0) == [0]
    lost = job.lose(0)
    job.send(PartProgress(lost, 0, 7))
    job.send(PartProgress(lost, 0, 10, complete=True), b"late")
    assert (job.rows, job.results) == ([], [])
    assert job.request(0) == [0]
    job.send(PartProgress(lost, 0, 10, complete=True), b"later")
    job.complete(0, 0, result=b"own")
    assert job.results == [(0, b"own")]
    job.complete(0, 0, result=b"again")
    assert job.results == [(0, b"own")]


def test_rows_of_a_repeated_part_are_counted_once() -> None:
    job = Job(parts=1, workers=1)
    job.request(0)
    job.send(PartProgress(job.stage.members[0], 0, 6))
    job.lose(0)
    job.request(0)
    for rows in (4, 8):
        job.send(PartProgress(job.stage.members[0], 0, rows))
    job.complete(0, 0, rows=10)
    assert job.rows == [6, 2, 2]


def test_a_new_generation_gets_the_parts_that_are_not_complete_in_order() -> None:
    job = Job(parts=4)
    assert [job.request(0), job.request(1)] == [[0], [1]]
    job.complete(0, 0)
    assert job.request(0) == [2]
    job.coordinator.begin(1)
    assert [job.request(0), job.request(1)] == [[1], [2]]
    job.complete(1, 2)
    assert job.request(1) == [3]


def test_after_a_stop_no_part_is_assigned() -> None:
    job = Job(parts=4)
    assert job.request(0) == [0]
    job.coordinator.stop()
    assert job.request(1) == []
    job.complete(0, 0)
    assert job.assigned(1) == [None]
