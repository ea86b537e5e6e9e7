"""A role's link to a coordinator that is the test itself."""

import queue
from collections.abc import Callable, Sequence
from typing import Any

from fake_stage import spec

from flambeau.coordination.roles import RoleSpec

PATIENCE = 20.0


class FakeCoordinator:
    """Has what the parts of a worker use of a `CoordinatorClient`."""

    def __init__(self, rank: int = 0, world: int = 2) -> None:
        self.spec: RoleSpec = spec(rank, world=world)
        self.servers: list[str] = []
        self.handlers: dict[type, Callable[[Any, Sequence[Any]], None]] = {}
        self.sent: queue.Queue[Any] = queue.Queue()
        #: What the coordinator does at once with what it is sent.
        self.answer: Callable[[Any, Sequence[Any]], None] = lambda message, buffers: None

    def on(self, kind: type, handler: Callable[[Any, Sequence[Any]], None]) -> None:
        self.handlers[kind] = handler

    def send(self, message: Any, buffers: Sequence[Any] = ()) -> None:
        self.sent.put(message)
        self.answer(message, buffers)

    def hear(self, message: Any, buffers: Sequence[Any] = ()) -> None:
        """The coordinator says something."""
        self.handlers[type(message)](message, buffers)

    def next_sent(self, kind: type) -> Any:
        """The next message of a kind that the role sends; waits for it."""
        while not isinstance(message := self.sent.get(timeout=PATIENCE), kind):
            pass
        return message

    def all_sent(self, kind: type) -> list[Any]:
        """The messages of a kind that the role has sent by now."""
        sent = []
        while not self.sent.empty():
            sent.append(self.sent.get())
        return [message for message in sent if isinstance(message, kind)]
