"""What workers do when another server takes a lost one's place."""

import pytest

from flambeau.messaging import Server, new_secret
from flambeau.parameter_server import channel as channel_module
from flambeau.parameter_server.channel import Access, Channel
from flambeau.parameter_server.client import PendingPull, ServerClient
from flambeau.parameter_server.protocol import CODEC, Declare, Declared, Pull, Values

HOST = "127.0.0.1"
SECRET = new_secret()
SOON = 20.0
DECLARE = Declare(1, 0, 0, [], None)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "POLL_SECONDS", 0.01)


def test_a_server_in_a_lost_ones_place_is_first_told_what_there_is() -> None:
    first, second = (Server(CODEC, SECRET, HOST) for _ in range(2))
    addresses = [first.address]
    channel = Channel(0, Access(SECRET, lambda _: addresses[0], SOON))
    channel.send(DECLARE)
    envelope = first.receive(SOON)
    assert envelope is not None
    first.send(envelope.peer, Declared(1, True, 0))
    channel.answer(1)
    addresses[0] = second.address
    channel.send(Pull(2, [], False, False))
    channel._act_on_silence()
    told = [second.receive(SOON) for _ in range(2)]
    assert [item.message for item in told if item] == [DECLARE, Pull(2, [], False, False)]
    channel.close()
    for server in (first, second):
        server.close()


def finished(*versions: tuple[int, int]) -> int:
    """The lost updates that a client counts when it takes answers (number, version) in turn."""
    client = ServerClient(0, Access(SECRET, lambda _: "", SOON), 0, 0)
    client._versions = [0]
    for number, version in versions:
        answers = [(Values(number, version), [])]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "_answers", lambda _, answers=answers: answers)
            client.finish_pull(PendingPull(number, [], [], 0.0))
    return client.counts["updates_lost"]


def test_a_version_that_goes_back_tells_how_many_updates_are_lost() -> None:
    assert finished((1, 10), (2, 4), (3, 5)) == 6


def test_an_older_answer_that_is_taken_later_loses_nothing() -> None:
    assert finished((1, 5), (3, 10), (2, 7), (4, 11)) == 0
