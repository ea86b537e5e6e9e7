import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.protocol import (
    CODEC,
    MAX_FRAME_BYTES,
    Begin,
    Heartbeat,
    Messages,
    Report,
    Restore,
    RoleJoined,
    Servers,
    Stop,
)
from flambeau.coordination.roles import Role, RoleSpec
from flambeau.coordination.task_messages import Contribution, Gathered, SlowestClock
from flambeau.errors import RequestTimeoutError
from flambeau.messaging import Envelope, Server, new_secret

SECRET = new_secret()
SPEC = RoleSpec(Role.WORKER, 1, 2, 1, 2, 0, 0)
JOINED = RoleJoined(SPEC, os.getpid())
SOON = 20.0


class Coordinator:
    """The other end of the link."""

    def __init__(self) -> None:
        self._server: Server[Messages] = Server(
            CODEC, SECRET, "127.0.0.1", max_bytes=MAX_FRAME_BYTES
        )
        self.coordinator = CoordinatorClient(self._server.address, SECRET, JOINED)
        self.first = self.next()
        self.peer = self.first.peer

    def next(self) -> Envelope[Messages]:
        envelope = self._server.receive(SOON)
        assert envelope is not None
        return envelope

    def next_of(self, kind: type) -> Envelope[Messages]:
        while not isinstance((envelope := self.next()).message, kind):
            pass
        return envelope

    def say(self, *messages: Messages, buffers: Any = ()) -> None:
        for message in messages:
            assert self._server.send(self.peer, message, buffers)

    def heard(self) -> None:
        """Wait until the link has taken note of all that was said."""
        self.say(Begin())
        self.coordinator.wait_until_all_joined(SOON)

    def close(self) -> None:
        self.coordinator.close()
        self._server.close()


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.close()


def test_a_role_joins_first_and_then_shows_that_it_lives(coordinator: Coordinator) -> None:
    assert coordinator.first.message == JOINED
    assert coordinator.next_of(Heartbeat).message == Heartbeat(SPEC)


def test_messages_that_came_before_their_handler_are_not_lost(coordinator: Coordinator) -> None:
    coordinator.say(SlowestClock(1), Restore("a"), SlowestClock(2))
    coordinator.heard()
    heard: list[Any] = []
    coordinator.coordinator.on(SlowestClock, lambda message, buffers: heard.append(message))
    assert heard == [SlowestClock(1), SlowestClock(2)]
    coordinator.coordinator.on(Restore, lambda message, buffers: heard.append(message))
    assert heard[2:] == [Restore("a")]


def test_they_are_passed_on_once(coordinator: Coordinator) -> None:
    coordinator.say(SlowestClock(1))
    coordinator.heard()
    for _ in range(2):
        heard: list[Any] = []
        coordinator.coordinator.on(
            SlowestClock, lambda message, buffers, heard=heard: heard.append(message)
        )
    assert not heard


def test_a_message_goes_to_its_handler_with_its_buffers(coordinator: Coordinator) -> None:
    heard: queue.Queue[Any] = queue.Queue()
    coordinator.coordinator.on(
        Gathered, lambda message, buffers: heard.put((message, list(buffers)))
    )
    coordinator.say(Gathered("0/0"), buffers=[b"zero", b"one"])
    message, buffers = heard.get(timeout=SOON)
    assert message == Gathered("0/0")
    assert [bytes(part) for part in buffers] == [b"zero", b"one"]


def test_large_exchanges_pass(coordinator: Coordinator) -> None:
    large = bytes(9 << 20)
    coordinator.coordinator.send(Contribution(SPEC, "0/0"), [large])
    assert coordinator.next_of(Contribution).buffers[0].nbytes == len(large)


def test_the_servers_are_known_with_the_beginning_and_when_one_has_moved(
    coordinator: Coordinator,
) -> None:
    coordinator.say(Begin(["tcp://a", "tcp://b"], "step-1"))
    begin = coordinator.coordinator.wait_until_all_joined(SOON)
    assert begin.checkpoint == "step-1"
    assert coordinator.coordinator.servers == ["tcp://a", "tcp://b"]
    coordinator.say(Servers(["tcp://a", "tcp://c"]), Stop())
    assert coordinator.coordinator.wait_for_stop(SOON)
    assert coordinator.coordinator.servers == ["tcp://a", "tcp://c"]


def test_a_stop_is_remembered(coordinator: Coordinator) -> None:
    assert not coordinator.coordinator.stop_requested
    coordinator.say(Stop())
    assert coordinator.coordinator.wait_for_stop(SOON)
    assert coordinator.coordinator.stop_requested


def test_a_report_says_who_what_and_how_much(coordinator: Coordinator) -> None:
    coordinator.coordinator.report("warning", text="slow")
    assert coordinator.next_of(Report).message == Report(SPEC, "warning", {"text": "slow"})


def test_any_thread_may_send(coordinator: Coordinator) -> None:
    threads = [
        threading.Thread(target=coordinator.coordinator.report, args=("warning",)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in threads:
        coordinator.next_of(Report)


def test_what_is_queued_is_sent_before_the_end(coordinator: Coordinator) -> None:
    for number in range(50):
        coordinator.coordinator.report("warning", number=number)
    coordinator.coordinator.close()
    numbers = [coordinator.next_of(Report).message for _ in range(50)]
    assert [report.fields["number"] for report in numbers if isinstance(report, Report)] == list(
        range(50)
    )


def test_others_that_do_not_join_are_an_error(coordinator: Coordinator) -> None:
    with pytest.raises(RequestTimeoutError, match="the other workers did not join"):
        coordinator.coordinator.wait_until_all_joined(timeout=0.0)
