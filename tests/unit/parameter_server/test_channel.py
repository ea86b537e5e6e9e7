"""Requests that survive lost messages, lost connections and servers that move."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from loopback_servers import HOST, SECRET, SOON, Servers, Serving, sgd

from flambeau.config.tables import TableSpec
from flambeau.errors import MessagingError, ModelError, RequestTimeoutError
from flambeau.messaging import Server
from flambeau.parameter_server import channel as channel_module
from flambeau.parameter_server.channel import Access, Channel
from flambeau.parameter_server.client import ServerClient, Update
from flambeau.parameter_server.protocol import (
    CODEC,
    AwaitSnapshot,
    Declared,
    Done,
    Initialise,
    Key,
    Messages,
    Pull,
    Pushed,
    Refused,
    Waiting,
)
from flambeau.parameter_server.shard import ServerShard, ShardSettings

ITEM = TableSpec("item", 2, dtype="fp64", optimizer=sgd())


class Silent:
    """A server that says only what the test has it say."""

    def __init__(self, port: int = 0) -> None:
        self.server: Server[Messages] = Server(CODEC, SECRET, HOST, port)
        self.address = self.server.address

    def hear(self) -> tuple[bytes, Messages]:
        envelope = self.server.receive(SOON)
        assert envelope is not None
        return envelope.peer, envelope.message

    def answer(self, *messages: Messages) -> None:
        """Hear one request and say this."""
        peer, _ = self.hear()
        for message in messages:
            self.server.send(peer, message)


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.server.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(channel_module, "POLL_SECONDS", 0.01)


def to(address: str, shard: int = 0, timeout: float = SOON) -> Channel:
    return Channel(shard, Access(SECRET, lambda _: address, timeout))


def read(number: int) -> Pull:
    return Pull(number, [], False, False)


def test_answers_are_taken_in_any_order(silent: Silent) -> None:
    channel = to(silent.address)
    channel.send(Initialise(1))
    channel.send(Initialise(2))
    silent.answer(Done(2), Done(1))
    assert channel.answer(1) == (Done(1), [])
    assert channel.answer(2) == (Done(2), [])
    assert not channel._open
    channel.close()


def test_a_sign_of_life_is_not_an_answer(silent: Silent) -> None:
    channel = to(silent.address)
    channel.send(AwaitSnapshot(1, "one"))
    silent.answer(Waiting(1), Waiting(1), Done(1))
    assert channel.answer(1)[0] == Done(1)
    channel.close()


def test_an_answer_that_comes_twice_counts_once(silent: Silent) -> None:
    channel = to(silent.address)
    channel.send(Initialise(1))
    channel.send(Initialise(2))
    silent.answer(Done(1), Done(1), Done(2))
    assert channel.answer(1)[0] == Done(1)
    assert channel.answer(2)[0] == Done(2)
    assert not channel._open
    channel.close()


def test_a_refusal_is_the_exception_that_it_names(silent: Silent) -> None:
    channel = to(silent.address)
    channel.send(Initialise(1))
    silent.answer(Refused(1, "ModelError", "the text"))
    with pytest.raises(ModelError, match=r"^the text$"):
        channel.answer(1)
    channel.close()


@pytest.mark.parametrize("name", ["SystemExit", "nonsense", "__doc__"])
def test_a_refusal_that_names_no_exception_of_ours_is_a_plain_one(
    silent: Silent, name: str
) -> None:
    channel = to(silent.address, shard=3)
    channel.send(Initialise(1))
    silent.answer(Refused(1, name, "the text"))
    with pytest.raises(MessagingError, match=f"server 3 refused: {name}: the text"):
        channel.answer(1)
    channel.close()


def test_a_server_that_is_silent_for_too_long_is_an_error_that_names_it(
    silent: Silent, quick: None
) -> None:
    channel = to(silent.address, shard=2, timeout=0.2)
    channel.send(Initialise(1))
    with pytest.raises(RequestTimeoutError, match=f"server 2 at {silent.address} has not answered"):
        channel.answer(1)
    channel.close()


def test_a_request_is_sent_again_after_silence(silent: Silent, quick: None) -> None:
    channel = to(silent.address, timeout=0.2)
    channel.send(read(1))
    with pytest.raises(RequestTimeoutError):
        channel.answer(1)
    (first, _), (second, message) = silent.hear(), silent.hear()
    assert message == read(1)
    assert first != second, "on a new connection"
    assert channel.resent >= 1
    channel.close()


def test_a_server_that_moved_gets_the_open_requests(silent: Silent, quick: None) -> None:
    with Servers(1) as servers:
        addresses = [silent.address]
        channel = Channel(0, Access(SECRET, lambda _: addresses[0], SOON))
        channel.send(read(1))
        channel.send(read(2))
        silent.hear()
        addresses[0] = servers.shards[0].address
        assert [channel.answer(number)[0].number for number in (2, 1)] == [2, 1]
        assert channel.resent >= 2
        channel.close()


def serving(shard: ServerShard, address: str) -> Serving:
    """The shard at an address where there was another server."""
    return Serving(shard, port=int(address.rsplit(":", 1)[1]))


def test_a_connection_that_was_cut_is_made_anew(quick: None) -> None:
    dying = Silent()
    channel = to(dying.address)
    channel.send(read(1))
    dying.hear()
    dying.server.close()
    server = serving(ServerShard(ShardSettings(0, 1, 0, None, lambda groups: None)), dying.address)
    channel.send(read(2))
    assert channel.answer(1)[0].number == 1
    assert channel.answer(2)[0].number == 2
    channel.close()
    server.stop()


def test_a_gradient_whose_answer_was_lost_is_applied_once(quick: None) -> None:
    with Servers(1) as servers:
        client = servers.worker(0, [ITEM], [1.0])
        (channel,) = client.channels
        resent = channel.resent
        update = Update(Key(0, 0, 0, 0), 1, 1, 1.0, rates=[1.0])
        sent = client.begin_push(update, [], np.array([0.25]))
        taken = None
        while not isinstance(taken, Pushed):
            taken, _ = channel._client.receive(SOON)
        assert client.finish_push(sent).outcome == "duplicate"
        out = np.empty(1)
        client.pull_dense(out)
        assert out == [0.75]
        assert channel.resent > resent


@pytest.fixture
def two_silent(quick: None) -> Iterator[tuple[Silent, Silent, ServerClient]]:
    servers = Silent(), Silent()
    access = Access(SECRET, lambda shard: servers[shard].address, SOON)
    client = ServerClient(2, access, 0, 0)
    yield *servers, client
    client.close()
    for server in servers:
        server.server.close()


def test_what_one_shard_lost_is_sent_again_while_another_waits_for_it(
    two_silent: tuple[Silent, Silent, ServerClient],
) -> None:
    first, second, client = two_silent
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(client.open, [], None)
        second.hear()  # and loses it
        second.answer(Declared(1, True, 0))
        while not opened.done():  # it asks again after each silence
            envelope = first.server.receive(0.1)
            if envelope is not None:
                first.server.send(envelope.peer, Declared(1, True, 0))
        assert opened.result()


def test_a_refusal_is_raised_while_another_shard_is_silent(
    two_silent: tuple[Silent, Silent, ServerClient],
) -> None:
    _, second, client = two_silent
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(client.open, [], None)
        _, message = second.hear()
        peer = second.hear()[0]
        second.server.send(peer, Refused(message.number, "ModelError", "the text"))
        with pytest.raises(ModelError, match="the text"):
            opened.result(SOON)
