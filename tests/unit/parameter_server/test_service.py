"""Declaring, pulling, and gradients that are applied as they come: shards over loopback."""

import numpy as np
import pytest
from loopback_servers import SEED, Servers, dense_layout, sgd

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import Initializer, MinCount, TableSpec
from flambeau.embeddings.backend import TableGradient
from flambeau.errors import CheckpointError, ModelError, ProtocolError
from flambeau.parameter_server.client import ServerClient, Update
from flambeau.parameter_server.protocol import Declare, Key, Pull
from flambeau.parameter_server.restoring import Restoring
from flambeau.tables.table import Table

ITEM = TableSpec("item", 2, dtype="fp64", optimizer=sgd())
USER = TableSpec("user", 3)
IDS = np.array([5, -1, 2**62, 7, 0, 11, 12, 13])


def gradient(ids: np.ndarray, number: float = 1.0, spec: TableSpec = ITEM) -> TableGradient:
    dtype = np.float64 if spec.dtype == "fp64" else np.float32
    return TableGradient(spec, ids, np.full((ids.size, spec.dim), number, dtype))


def update(batch: int = 0, *, task: int = 0, generation: int = 0, **changes: float) -> Update:
    values = {"rows": 4, "planned": 4, "weight": 4.0, "rates": [1.0], **changes}
    return Update(Key(generation, 0, task, batch), **values)


def push(client: ServerClient, key: Update, *gradients: TableGradient, **parts) -> str:
    return client.finish_push(client.begin_push(key, gradients, **parts)).outcome


def rows(client: ServerClient, spec: TableSpec = ITEM, *, training: bool = True) -> np.ndarray:
    (found,) = client.pull([(spec, IDS)], training=training)
    return found


def weights(client: ServerClient, numel: int) -> list[float]:
    out = np.empty(numel)
    client.pull_dense(out)
    return out.tolist()


# Declaring


def test_two_specs_under_one_name_are_an_error_of_the_model() -> None:
    with Servers(2) as servers:
        servers.worker(0, [ITEM])
        other = servers.client(1)
        with pytest.raises(ModelError, match="table 'item' has two specs"):
            other.open([TableSpec("item", 4)], None)


def test_a_table_that_others_do_not_have_is_an_error_of_the_model() -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM])
        with pytest.raises(ModelError, match="table 'user' is new"):
            servers.client(1).open([ITEM, USER], None)


def test_a_table_that_is_missing_is_an_error_since_tables_are_known_by_their_place() -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM, USER])
        with pytest.raises(ModelError, match="a worker lacks table 'item'"):
            servers.client(1).open([USER], None)


def test_dense_weights_that_differ_are_an_error_of_the_model() -> None:
    with Servers(1) as servers:
        servers.worker(0, [], [1.0, 2.0])
        with pytest.raises(ModelError, match=r"'w' \(2 values, group 0\) here is 'w' \(3 values"):
            servers.client(1).open([], dense_layout(3))
        with pytest.raises(ModelError, match="some workers have dense weights on the servers"):
            servers.client(2).open([], None)


def test_a_worker_of_another_generation_is_refused() -> None:
    with Servers(1, generation=2) as servers:
        servers.generation = 1
        with pytest.raises(ProtocolError, match="of generation 1, this is 2"):
            servers.client().open([ITEM], None)


def test_the_first_worker_gives_the_values_and_the_others_wait_for_them() -> None:
    with Servers(1) as servers:
        first, second = servers.client(0), servers.channel()
        assert not first.open([ITEM], None)
        second.send(Declare(1, 1, 0, [ITEM.model_dump(mode="json")], None))
        second.send(Pull(2, [], False, False))
        second.answer(2)
        assert list(second._open) == [1]
        first.initialise(None)
        declared, _ = second.answer(1)
        assert declared.begun


def test_a_worker_that_comes_later_need_not_wait_and_changes_nothing() -> None:
    with Servers(2) as servers:
        servers.worker(0, [], [1.0, 2.0, 3.0])
        late = servers.client(1)
        assert late.open([], dense_layout(3))
        late.initialise(np.zeros(3))
        assert weights(late, 3) == [1.0, 2.0, 3.0]


def test_a_server_that_cannot_restore_says_so_to_everybody_who_asks(tmp_path) -> None:
    with Servers(1, restoring=Restoring(tmp_path / "step-1")) as servers:
        for worker in (0, 1, 0):
            with pytest.raises(CheckpointError, match="step-1 is not committed"):
                servers.client(worker).open([ITEM], None)


def test_dense_weights_are_cut_into_ranges_of_the_shards() -> None:
    with Servers(3) as servers:
        client = servers.worker(0, [], [1.0, 2.0, 3.0, 4.0])
        assert weights(client, 4) == [1.0, 2.0, 3.0, 4.0]
        sizes = servers.ask(lambda service: service.shard.dense.values.size)
        assert sizes == [1, 1, 2]


def test_more_shards_than_weights_are_fine() -> None:
    with Servers(3) as servers:
        client = servers.worker(0, [], [1.0])
        assert push(client, update(), dense=np.array([0.25])) == "applied"
        assert weights(client, 1) == [0.75]


# Pulling


@pytest.mark.parametrize("shards", [1, 3])
def test_unknown_ids_read_as_they_would_begin_however_many_shards_there_are(shards: int) -> None:
    with Servers(shards) as servers:
        client = servers.worker(0, [ITEM])
        expected = Table(ITEM, SEED).pull(IDS, training=True)
        np.testing.assert_array_equal(rows(client), expected)
        assert len(np.unique(expected)) == expected.size


def test_reading_creates_no_rows() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM])
        rows(client, training=True)
        rows(client, training=False)
        assert servers.ask(lambda service: len(service.shard.tables[0])) == [0, 0]


def test_in_evaluation_an_unknown_id_reads_as_the_default_row() -> None:
    spec = TableSpec("item", 2, initializer=Initializer(kind="constant", value=3.0))
    with Servers(2) as servers:
        client = servers.worker(0, [spec])
        default = Table(spec, SEED).pull(IDS, training=False)
        np.testing.assert_array_equal(rows(client, spec, training=False), default)


def test_an_id_that_is_not_admitted_yet_reads_as_the_default_row() -> None:
    spec = TableSpec("item", 2, optimizer=sgd(), admission=MinCount(2, cells=1024))
    with Servers(2) as servers:
        client = servers.worker(0, [spec])
        default = Table(spec, SEED).pull(IDS, training=False)
        np.testing.assert_array_equal(rows(client, spec), default)
        push(client, update(0), gradient(IDS, spec=spec))
        assert (rows(client, spec) != default).any(axis=1).all()


def test_several_tables_are_read_at_once_in_the_order_asked() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM, USER])
        found = client.pull([(USER, IDS[:3]), (ITEM, IDS), (USER, IDS[3:3])], training=True)
        np.testing.assert_array_equal(found[0], Table(USER, SEED).pull(IDS[:3], training=True))
        np.testing.assert_array_equal(found[1], Table(ITEM, SEED).pull(IDS, training=True))
        assert found[2].shape == (0, 3)


def test_rows_that_a_table_begins_with_are_those_it_was_given() -> None:
    with Servers(2) as servers:
        client = servers.client()
        client.open([ITEM], None)
        given = np.arange(16.0).reshape(8, 2)
        client.load(ITEM, IDS, given)
        client.initialise(None)
        client.load(ITEM, IDS, np.zeros((8, 2)))  # too late: training has begun
        np.testing.assert_array_equal(rows(client), given)


# Gradients that are applied as they come


def test_a_push_changes_rows_and_weights_once() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM], [1.0, 2.0, 3.0])
        before = rows(client)
        outcome = push(client, update(), gradient(IDS, 0.5), dense=np.array([1.0, 0.0, -1.0]))
        assert outcome == "applied"
        np.testing.assert_allclose(rows(client), before - 0.5, rtol=1e-15)
        assert weights(client, 3) == [0.0, 2.0, 4.0]


def test_the_answer_to_a_push_brings_the_new_weights() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [], [1.0, 2.0, 3.0])
        out = np.empty(3)
        client.finish_push(client.begin_push(update(), [], np.ones(3)), out)
        assert out.tolist() == [0.0, 1.0, 2.0]


def test_learning_rates_and_the_factor_of_tables_come_with_the_push() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM], [0.0, 0.0])
        before = rows(client)
        key = update(rates=[0.5], factor=0.25)
        push(client, key, gradient(IDS, 1.0), dense=np.ones(2))
        np.testing.assert_allclose(rows(client), before - 0.25, rtol=1e-15)
        assert weights(client, 2) == [-0.5, -0.5]


def test_the_same_gradient_is_applied_once_whoever_sends_it() -> None:
    with Servers(2) as servers:
        first, second = servers.worker(0, [ITEM]), servers.worker(1, [ITEM])
        before = rows(first)
        assert push(first, update(3, task=8), gradient(IDS)) == "applied"
        assert push(first, update(3, task=8), gradient(IDS)) == "duplicate"
        assert push(second, update(3, task=8), gradient(IDS)) == "duplicate"
        assert push(second, update(4, task=8), gradient(IDS)) == "applied"
        np.testing.assert_allclose(rows(first), before - 2.0, rtol=1e-15)


def test_the_same_message_twice_is_answered_twice_and_applied_once() -> None:
    with Servers(1) as servers:
        client = servers.worker(0, [], [1.0])
        client.begin_push(update(), [], np.array([0.25]))
        (channel,) = client.channels
        (number, request), *_ = channel._open.items()
        channel._client.send(request.message, request.buffers)
        assert channel.answer(number)[0].outcome == "applied"
        assert weights(client, 1) == [0.75]


def test_a_gradient_of_an_old_generation_is_refused() -> None:
    with Servers(1, generation=3) as servers:
        client = servers.worker(0, [ITEM])
        before = rows(client)
        with pytest.raises(ProtocolError, match="of generation 2, this is 3"):
            push(client, update(generation=2), gradient(IDS))
        np.testing.assert_array_equal(rows(client), before)


def test_a_gradient_that_is_not_finite_is_skipped_for_good() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM], [1.0])
        before = rows(client)
        bad = gradient(IDS, np.nan)
        assert push(client, update(0, finite=False), bad, dense=np.array([np.inf])) == "skipped"
        assert push(client, update(0), gradient(IDS), dense=np.array([1.0])) == "duplicate"
        np.testing.assert_array_equal(rows(client), before)
        assert weights(client, 1) == [1.0]


def test_rows_that_are_wanted_come_as_they_are_after_the_update() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM, USER])
        before = rows(client)
        pending = client.begin_push(
            update(), [gradient(IDS[:4])], want=[(USER, IDS[:2]), (ITEM, IDS[2:6])]
        )
        user, item = client.finish_push(pending).rows
        np.testing.assert_array_equal(user, Table(USER, SEED).pull(IDS[:2], training=True))
        np.testing.assert_allclose(item[:2], before[2:4] - 1.0, rtol=1e-15)
        np.testing.assert_array_equal(item[2:], before[4:6])


@pytest.mark.parametrize("compression", ["bf16", "fp16"])
def test_gradients_in_half_precision_are_rounded_and_applied(compression: str) -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM, USER], [1.0, 1.0], compression=compression)
        before = rows(client), rows(client, USER)
        numbers = np.linspace(-0.3, 0.9, 16).reshape(8, 2)
        push(
            client,
            update(),
            TableGradient(ITEM, IDS, numbers),
            gradient(IDS, 0.1, USER),
            dense=np.array([0.1, -3.0]),
        )
        np.testing.assert_allclose(before[0] - rows(client), numbers, rtol=4e-3)
        np.testing.assert_allclose(before[1] - rows(client, USER), 0.1, rtol=4e-3)
        found = np.array(weights(client, 2))
        np.testing.assert_allclose(found, [0.9, 4.0], rtol=4e-3)
        assert found[0] != 0.9


def test_all_shards_count_the_updates_of_a_table_that_was_looked_up() -> None:
    spec = TableSpec("item", 2, optimizer=OptimizerSpec(name="adam"))
    with Servers(3) as servers:
        client = servers.worker(0, [spec])
        for batch in range(3):
            push(client, update(batch), gradient(IDS[:1], spec=spec))
        assert servers.ask(lambda service: service.shard.tables[0].steps) == [3, 3, 3]


def test_everything_works_encrypted() -> None:
    with Servers(2, encrypt=True) as servers:
        client = servers.worker(0, [ITEM], [1.0, 2.0])
        before = rows(client)
        assert push(client, update(), gradient(IDS), dense=np.ones(2)) == "applied"
        np.testing.assert_allclose(rows(client), before - 1.0, rtol=1e-15)
        assert weights(client, 2) == [0.0, 1.0]


def test_a_client_counts_what_it_asked_for() -> None:
    with Servers(2) as servers:
        client = servers.worker(0, [ITEM])
        rows(client)
        push(client, update(), gradient(IDS))
        push(client, update(), gradient(IDS))
        counted = {
            "pulls": 1,
            "rows_pulled": 8,
            "pushes": 2,
            "rows_pushed": 16,
            "outcome_applied": 1,
            "outcome_duplicate": 1,
        }
        assert client.counts.items() >= counted.items()
        assert client.latencies.percentile(0.5) > 0


def test_a_server_knows_how_old_the_values_were_that_a_gradient_was_computed_with() -> None:
    with Servers(1) as servers:
        slow, fast = servers.worker(0, [ITEM]), servers.worker(1, [ITEM])
        rows(slow)
        for batch in range(2):
            push(fast, update(batch, task=1), gradient(IDS))
        push(slow, update(0, task=2), gradient(IDS))
        summary = servers.ask(lambda service: service.statistics.summary([]))[0]
        assert summary["staleness"] == {"0": 2, "2": 1}


# Large buffers


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16", "fp16"])
def test_large_batches_go_through_memory_which_is_given_back(dtype: str) -> None:
    spec = TableSpec("large", 8, dtype=dtype, optimizer=sgd())
    ids = np.arange(5000) * 7919
    with Servers(1) as servers:
        client = servers.worker(0, [spec], [0.0] * 4000)
        plain = Table(spec, SEED, sgd())
        out = np.empty(4000)
        for number in range(40):
            (found,) = client.pull([(spec, ids)], training=True)
            np.testing.assert_array_equal(found, plain.pull(ids, training=True))
            grads = gradient(ids, 0.125 * number, spec)
            sent = client.begin_push(
                update(number), [grads], np.ones(4000), want=[(spec, ids[:3000])]
            )
            back = client.finish_push(sent, out)
            plain.push(ids, grads.grads)
            np.testing.assert_array_equal(back.rows[0], plain.pull(ids[:3000], training=True))
            np.testing.assert_array_equal(out, -float(number + 1))
        del found, back
        shared = client.channels[0]._client._shared
        assert shared is not None
        # The server may still have the last message, and the ids it compared last.
        assert np.count_nonzero(shared._my_states) <= 2
        assert not shared._their_states.any()
