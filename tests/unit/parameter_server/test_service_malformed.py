"""Requests that do not fit are refused, and change nothing."""

from typing import Any

import numpy as np
import pytest
from loopback_servers import Servers, dense_layout, sgd
from msgspec.structs import replace

from flambeau.config.tables import TableSpec
from flambeau.errors import ConfigError, ModelError, ProtocolError
from flambeau.parameter_server.channel import Channel
from flambeau.parameter_server.protocol import (
    Declare,
    Done,
    Initialise,
    Key,
    Load,
    Pull,
    Push,
    TablePart,
)

ITEM = TableSpec("item", 2, dtype="fp64", optimizer=sgd())
IDS = np.array([1, 2, 3])
GRADS = np.ones((3, 2))
DENSE = np.ones(4)
WANT = np.array([8, 9])

PUSH = Push(
    number=7,
    worker=0,
    key=Key(0, 0, 0, 0),
    rows=1,
    planned=1,
    weight=1.0,
    version=0,
    finite=True,
    parts=[TablePart(0, 3)],
    dense=True,
    absent=[],
    rates=[1.0],
    factor=1.0,
    compression="none",
    want=[TablePart(0, 2)],
)
SOUND = [IDS, GRADS, DENSE, WANT]

MALFORMED: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "ids too few": ({}, [IDS[:2], *SOUND[1:]], "16 bytes for 3 numbers"),
    "gradients too few": ({}, [IDS, GRADS[:2], DENSE, WANT], "32 bytes for 6 numbers"),
    "gradients of float32": ({}, [IDS, np.ones((3, 2), np.float32), DENSE, WANT], "24 bytes for 6"),
    "gradients not compressed": ({"compression": "bf16"}, SOUND, "48 bytes for 6 numbers of 2"),
    "a negative count": ({"parts": [TablePart(0, -3)]}, SOUND, "for -3 numbers"),
    "a huge count": ({"parts": [TablePart(0, 2**62)]}, SOUND, "24 bytes for 4611686018427387904"),
    "dense too short": ({}, [IDS, GRADS, DENSE[:3], WANT], "24 bytes for 4 numbers"),
    "wanted ids too few": ({}, [IDS, GRADS, DENSE, WANT[:1]], "8 bytes for 2 numbers"),
    "an unknown table": ({"parts": [TablePart(1, 3)]}, SOUND, "no table number 1"),
    "a negative table": ({"parts": [TablePart(-1, 3)]}, SOUND, "no table number -1"),
    "an unknown table wanted": ({"want": [TablePart(4, 2)]}, SOUND, "no table number 4"),
    "a buffer too few": ({}, SOUND[:3], "3 buffers instead of 4"),
    "a buffer too many": ({}, [*SOUND, DENSE], "5 buffers instead of 4"),
    "no buffers": ({}, [], "0 buffers instead of 4"),
    "no learning rates": ({"rates": []}, SOUND, "0 learning rates for 1 groups"),
    "rates of other groups": ({"rates": [1.0, 1.0]}, SOUND, "2 learning rates for 1 groups"),
    "another generation": ({"key": Key(1, 0, 0, 0)}, SOUND, "of generation 1, this is 0"),
}


def ask(channel: Channel, message: Any, *buffers: Any) -> Any:
    channel.send(message, buffers)
    return channel.answer(message.number)[0]


def state(servers: Servers) -> Any:
    """Everything that a push could change."""

    def of(service: Any) -> Any:
        shard = service.shard
        table = shard.tables[0].pull(np.arange(10), training=True).tolist()
        counts = len(shard.tables[0]), shard.tables[0].steps, shard.version, shard.staging.round
        return table, counts, shard.dense.values.tolist(), shard.watermarks.dump()

    return servers.ask(of)


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_push_is_refused_and_changes_nothing(case: str, lockstep: bool) -> None:
    changes, buffers, message = MALFORMED[case]
    with Servers(1, lockstep=lockstep) as servers:
        servers.worker(0, [ITEM], [1.0] * 4)
        before = state(servers)
        channel = servers.channel()
        with pytest.raises(ProtocolError, match=message):
            ask(channel, replace(PUSH, **changes), *buffers)
        assert state(servers) == before
        assert servers.shards[0].said.empty()


def test_the_push_that_the_malformed_ones_are_made_of_is_sound() -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM], [1.0] * 4)
        # Sent again, and then known, if it takes long: kernels may have to be compiled first.
        assert ask(servers.channel(), PUSH, *SOUND).outcome in ("applied", "duplicate")


def test_a_dense_gradient_for_a_shard_without_dense_weights_is_refused() -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM])
        with pytest.raises(ProtocolError, match="without dense weights"):
            ask(servers.channel(), PUSH, *SOUND)


def test_a_push_before_anything_is_declared_is_refused() -> None:
    with Servers(1) as servers, pytest.raises(ProtocolError, match="no table number 0"):
        ask(servers.channel(), PUSH, *SOUND)


@pytest.mark.parametrize(
    ("parts", "buffers", "message"),
    [
        ([TablePart(0, 3)], [], "0 buffers instead of 1"),
        ([TablePart(0, 2)], [IDS], "24 bytes for 2 numbers"),
        ([TablePart(9, 3)], [IDS], "no table number 9"),
    ],
)
def test_a_malformed_pull_is_refused(parts, buffers, message) -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM])
        with pytest.raises(ProtocolError, match=message):
            ask(servers.channel(), Pull(1, parts, True, False), *buffers)


@pytest.mark.parametrize(
    ("request_", "buffers", "message"),
    [
        (Load(1, 0, 3), [IDS], "1 buffers instead of 2"),
        (Load(1, 0, 3), [IDS, GRADS[:1]], "16 bytes for 6 numbers"),
        (Load(1, 5, 3), [IDS, GRADS], "no table number 5"),
        (Initialise(1), [], "0 buffers instead of 1"),
        (Initialise(1), [DENSE[:1]], "8 bytes for 4 numbers"),
    ],
)
def test_malformed_first_values_are_refused_and_training_has_not_begun(
    request_, buffers, message
) -> None:
    with Servers(1) as servers:
        servers.client().open([ITEM], dense_layout(4))
        with pytest.raises(ProtocolError, match=message):
            ask(servers.channel(), request_, *buffers)
        assert servers.ask(lambda service: service.shard.begun) == [False]
        assert state(servers)[0][1] == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("tables", "layout", "kind"),
    [
        ([{"name": "item"}], None, ConfigError),
        ([], {"parameters": [], "dtype": "int8", "groups": []}, ProtocolError),
        (
            [],
            {"parameters": [{"name": "w", "numel": 3, "group": 1}], "dtype": "float32"}
            | {"groups": [{}]},
            ProtocolError,
        ),
    ],
)
def test_a_malformed_declaration_is_refused_and_the_next_is_taken(tables, layout, kind) -> None:
    with Servers(1) as servers:
        channel = servers.channel()
        with pytest.raises(kind):
            ask(channel, Declare(1, 0, 0, tables, layout))
        good = Declare(2, 0, 0, [ITEM.model_dump(mode="json")], None)
        assert not ask(channel, good).begun


def test_an_answer_is_not_a_request() -> None:
    with Servers(1) as servers, pytest.raises(ProtocolError, match="does not take Done"):
        ask(servers.channel(), Done(1))


def test_a_client_does_not_ask_for_tables_that_were_not_declared() -> None:
    with Servers(1) as servers:
        client = servers.worker(0, [ITEM])
        client.declare([ITEM])
        with pytest.raises(ModelError, match="table 'other' was not in the model"):
            client.declare([TableSpec("other", 2)])
