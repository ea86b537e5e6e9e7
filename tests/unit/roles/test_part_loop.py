from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_coordinator import FakeCoordinator

from flambeau.coordination.task_messages import PartAssigned, PartProgress, TaskRequest
from flambeau.roles import part_loop


class Assigning(FakeCoordinator):
    """A coordinator that answers each request with the next part."""

    def __init__(self, *parts: int) -> None:
        super().__init__()
        self.left: list[int | None] = [*parts, None]
        self.answer = self._assign
        self.results: list[Any] = []
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def _assign(self, message: Any, buffers: Sequence[Any]) -> None:
        if isinstance(message, TaskRequest):
            self.hear(PartAssigned(self.left.pop(0)))
        else:
            self.results.append((message.part, message.rows, message.complete, list(buffers)))


def work(part: int, count: Callable[[int], None]) -> bytes:
    for rows in (4, 4, 2):
        count(rows)
    return b"result" if part else b""


def test_parts_are_worked_on_until_none_is_left() -> None:
    coordinator: Any = Assigning(3, 0)
    assert part_loop.work_on_parts(coordinator, work) == 2
    assert coordinator.results == [(3, 10, True, [b"result"]), (0, 10, True, [])]
    assert coordinator.marks == 6


def test_rows_are_reported_while_a_part_is_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_loop, "REPORT_SECONDS", -1.0)
    coordinator: Any = Assigning(5)
    part_loop.work_on_parts(coordinator, work)
    sent = coordinator.all_sent(PartProgress)
    assert [(message.rows, message.complete) for message in sent] == [
        (4, False),
        (8, False),
        (10, False),
        (10, True),
    ]


def test_an_exception_ends_the_loop() -> None:
    def fail(part: int, count: Callable[[int], None]) -> bytes:
        raise ValueError(f"part {part}")

    coordinator: Any = Assigning(1, 2)
    with pytest.raises(ValueError, match="part 1"):
        part_loop.work_on_parts(coordinator, fail)
    assert coordinator.left == [2, None]
