"""Snapshots of shards that go on meanwhile, and shards that begin with them."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loopback_servers import SEED, Servers, Serving, dense_layout, write_manifest

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import Capacity, MinCount, TableSpec
from flambeau.embeddings.backend import TableGradient
from flambeau.errors import CheckpointError, ModelError, SnapshotLostError
from flambeau.parameter_server.client import ServerClient, Update
from flambeau.parameter_server.protocol import AwaitSnapshot, Key, TakeSnapshot
from flambeau.parameter_server.restoring import Restoring, read_states
from flambeau.parameter_server.shard import ServerShard, ShardSettings

ADAM = OptimizerSpec(name="adam", args={"lr": 0.1})
ITEM = TableSpec("item", 2, dtype="fp64", optimizer=ADAM)
#: With so many cells no two of the ids are counted together.
RARE = TableSpec("rare", 3, admission=MinCount(2, cells=1 << 18))
SPECS = [ITEM, RARE]
ALL = np.arange(-300, 300)
NUMEL = 11


def pushes(client: ServerClient, batches: range, ids: int = 60) -> list[Any]:
    """Gradients that depend on the batch's number alone, sent and not waited for."""
    pending = []
    for batch in batches:
        numbers = np.random.default_rng(batch)
        some, others = (numbers.choice(ALL, ids, replace=False) for _ in range(2))
        gradients = [
            TableGradient(ITEM, some, numbers.normal(size=(ids, 2))),
            TableGradient(RARE, others, numbers.normal(size=(ids, 3)).astype(np.float32)),
        ]
        update = Update(Key(0, 0, 0, batch), 1, 1, 1.0, rates=[0.1])
        pending.append(client.begin_push(update, gradients, numbers.normal(size=NUMEL)))
    return pending


def outcomes(client: ServerClient, pending: list[Any]) -> set[str]:
    return {client.finish_push(push).outcome for push in pending}


def state(client: ServerClient) -> list[np.ndarray]:
    """All that a worker can see."""
    dense = np.empty(NUMEL)
    client.pull_dense(dense)
    wanted = [(spec, ALL) for spec in SPECS]
    learning = client.pull(wanted, training=True)
    return [dense, *learning, *client.pull(wanted, training=False)]


def assert_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def restored(servers: Servers, worker: int = 0) -> ServerClient:
    client = servers.client(worker)
    assert client.open(SPECS, dense_layout(NUMEL))
    return client


def adam_servers(count: int, **options: Any) -> Servers:
    return Servers(count, optimizer=torch.optim.Adam, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, list[np.ndarray], list[np.ndarray]]:
    """A checkpoint of two shards that gradients came to while it was written.

    Also what the servers held at its moment, and after those gradients.
    """
    folder = tmp_path_factory.mktemp("run") / "base"
    with pytest.MonkeyPatch.context() as patch, adam_servers(2) as servers:
        patch.setattr("flambeau.parameter_server.service.SNAPSHOT_ROWS", 1)
        client = servers.worker(0, SPECS, [0.5] * NUMEL)
        assert outcomes(client, pushes(client, range(12))) == {"applied"}
        before = state(client)
        holding = [shard.hold() for shard in servers.shards]
        servers.begin_snapshot(folder, client.channels)
        meanwhile = pushes(client, range(12, 20))
        for event in holding:
            event.set()
        assert outcomes(client, meanwhile) == {"applied"}
        servers.finish_snapshot(folder, client.channels, SPECS)
        return folder, before, state(client)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_snapshot_is_the_state_of_one_moment_for_any_number_of_shards(run, shards: int) -> None:
    folder, before, _ = run
    with adam_servers(shards, restoring=Restoring(folder)) as servers:
        assert_equal(state(restored(servers)), before)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_training_goes_on_from_a_snapshot_as_it_did_without(run, shards: int) -> None:
    folder, _, after = run
    with adam_servers(shards, restoring=Restoring(folder)) as servers:
        client = restored(servers)
        assert outcomes(client, pushes(client, range(12, 20))) == {"applied"}
        for found, expected in zip(state(client), after, strict=True):
            # Not bit by bit: how wide a range is decides which of torch's loops a weight is in.
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_was_applied_before_a_snapshot_is_not_applied_after_it(run) -> None:
    folder, before, _ = run
    with adam_servers(3, restoring=Restoring(folder)) as servers:
        client = restored(servers)
        assert outcomes(client, pushes(client, range(12))) == {"duplicate"}
        assert_equal(state(client), before)


def test_no_worker_waits_for_servers_that_were_restored(run) -> None:
    with adam_servers(2, restoring=Restoring(run[0])) as servers:
        restored(servers, worker=1)


def test_afresh_only_tables_begin_with_a_checkpoint(run) -> None:
    folder, before, _ = run
    with adam_servers(2, restoring=Restoring(folder, afresh=True)) as servers:
        client = servers.client()
        assert not client.open(SPECS, dense_layout(NUMEL))
        client.initialise(np.zeros(NUMEL))
        assert_equal(state(client), [np.zeros(NUMEL), *before[1:]])
        assert outcomes(client, pushes(client, range(1))) == {"applied"}


def test_afresh_rows_of_a_checkpoint_win_over_those_that_a_model_brings(run) -> None:
    folder, before, _ = run
    with adam_servers(2, restoring=Restoring(folder, afresh=True)) as servers:
        client = servers.client()
        client.open(SPECS, dense_layout(NUMEL))
        client.load(ITEM, ALL, np.full((ALL.size, 2), 7.0))
        client.initialise(np.zeros(NUMEL))
        assert_equal(state(client), [np.zeros(NUMEL), *before[1:]])


def test_the_open_round_is_in_the_snapshot(tmp_path) -> None:
    folder = tmp_path / "base"
    with Servers(1, lockstep=True) as servers:
        client = servers.worker(0, [], [0.0])
        for number in range(3):
            update = Update(Key(0, 0, 0, number), 1, 1, 1.0, rates=[1.0])
            pending = client.begin_push(update, [], np.ones(1))
            servers.hear()
            servers.commit(number, [0])
            client.finish_push(pending)
        servers.snapshot(folder, [])
    with Servers(2, lockstep=True, restoring=Restoring(folder)) as servers:
        client = servers.client()
        assert client.open([], dense_layout(1))
        assert client.round == 3


def test_a_table_of_other_rows_than_the_checkpoint_has_is_an_error_of_the_model(run) -> None:
    with adam_servers(1, restoring=Restoring(run[0])) as servers:
        wider = ITEM.model_copy(update={"dim": 5})
        with pytest.raises(ModelError, match="table 'item' has dim 5, but 2 in the checkpoint"):
            servers.client().open([wider, RARE], dense_layout(NUMEL))


def test_a_checkpoint_without_servers_cannot_be_restored(tmp_path) -> None:
    write_manifest(tmp_path, [], [])
    with pytest.raises(CheckpointError, match="holds no state of servers"):
        read_states(tmp_path)


# Only what changed


def evicting(name: str = "item") -> TableSpec:
    return TableSpec(name, 2, dtype="fp64", optimizer=ADAM, eviction=Capacity(64))


def train(client: ServerClient, spec: TableSpec, batches: range) -> None:
    """Each batch brings eight ids; the oldest ones leave."""
    for batch in batches:
        ids = np.arange(8 * batch, 8 * batch + 8)
        update = Update(Key(0, 0, 0, batch), 1, 1, 1.0)
        own = TableGradient(spec, ids, np.full((8, 2), 0.5 + batch))
        assert client.finish_push(client.begin_push(update, [own])).outcome == "applied"


def held(client: ServerClient, spec: TableSpec) -> np.ndarray:
    (rows,) = client.pull([(spec, np.arange(400))], training=False)
    return rows


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_what_changed_and_what_left_is_enough_on_top_of_a_full_snapshot(tmp_path, shards) -> None:
    spec = evicting()
    with Servers(2) as servers:
        client = servers.worker(0, [spec])
        train(client, spec, range(12))
        full = servers.snapshot(tmp_path / "base", [spec], incremental=True)
        train(client, spec, range(12, 20))
        rest = servers.snapshot(tmp_path / "rest", [spec], incremental=True)
        expected, rows = held(client, spec), servers.ask(lambda s: len(s.shard.tables[0]))
    assert [table.full for one in (*full, *rest) for table in one.tables] == [True] * 2 + [
        False
    ] * 2
    with Servers(shards, restoring=Restoring(tmp_path / "rest")) as servers:
        client = servers.client()
        assert client.open([spec], None)
        np.testing.assert_array_equal(held(client, spec), expected)
        assert sum(servers.ask(lambda s: len(s.shard.tables[0]))) == sum(rows)
    with Servers(shards, restoring=Restoring(tmp_path / "base")) as servers:
        client = servers.client()
        client.open([spec], None)
        assert (held(client, spec) != expected).any()


# Things that go wrong


def test_a_worker_goes_on_with_a_server_that_took_the_place_of_a_lost_one(tmp_path) -> None:
    folder = tmp_path / "base"
    with Servers(1) as servers:
        client = servers.worker(0, [], [1.0, 1.0])
        steps = [Update(Key(0, 0, 0, batch), 1, 1, 1.0, rates=[1.0]) for batch in range(3)]
        client.finish_push(client.begin_push(steps[0], [], np.full(2, 0.5)))
        servers.snapshot(folder, [])
        client.finish_push(client.begin_push(steps[1], [], np.full(2, 0.25)))
        servers.shards[0].stop()
        shard = ServerShard(ShardSettings(0, 1, SEED, None, torch.optim.SGD))
        servers.shards[0] = Serving(shard, restoring=Restoring(folder))
        out = np.empty(2)
        result = client.finish_push(client.begin_push(steps[2], [], np.full(2, 0.125)), out)
        assert result.outcome == "applied"
        assert out.tolist() == [0.375, 0.375], "what was not saved is lost"


def take(servers: Servers, name: str, directory: Path) -> Any:
    channel = servers.channel()
    channel.send(TakeSnapshot(1, name, str(directory), False, False))
    channel.answer(1)
    return channel


def test_the_same_request_twice_begins_one_snapshot(tmp_path) -> None:
    with Servers(1) as servers:
        servers.worker(0, [ITEM])
        channel = take(servers, "one", tmp_path)
        first = servers.ask(lambda service: service._snapshot)
        take(servers, "one", tmp_path)
        assert servers.ask(lambda service: service._snapshot) == first
        channel.send(AwaitSnapshot(2, "one"))
        assert len(channel.answer(2)[0].files) == 2


def test_a_snapshot_that_the_server_does_not_know_is_lost(tmp_path) -> None:
    with Servers(1) as servers:
        channel = servers.channel()
        channel.send(AwaitSnapshot(1, "one"))
        with pytest.raises(SnapshotLostError, match="the server that began the snapshot was lost"):
            channel.answer(1)


def test_a_directory_that_cannot_be_written_is_an_error_and_the_server_goes_on(tmp_path) -> None:
    with Servers(1) as servers:
        client = servers.worker(0, [ITEM])
        take(servers, "one", tmp_path)
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError, match="file/below: Not a directory"):
            take(servers, "two", tmp_path / "file" / "below")
        assert client.pull([(ITEM, ALL)], training=True)[0].shape == (600, 2)
        channel = take(servers, "three", tmp_path)
        channel.send(AwaitSnapshot(2, "three"))
        assert len(channel.answer(2)[0].files) == 2


def test_a_full_disk_is_passed_on_as_such(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Servers(1) as servers:
        servers.worker(0, [ITEM])
        monkeypatch.setattr(os, "pwrite", full)
        channel = take(servers, "one", tmp_path)
        channel.send(AwaitSnapshot(2, "one"))
        with pytest.raises(OSError, match=r"item.*No space left on device") as caught:
            channel.answer(2)
        assert caught.value.errno == errno.ENOSPC


def test_who_awaits_a_snapshot_that_another_one_replaced_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flambeau.parameter_server.service.SNAPSHOT_ROWS", 1)
    with Servers(1) as servers:
        client = servers.worker(0, SPECS, [0.5] * NUMEL)
        outcomes(client, pushes(client, range(10)))
        event = servers.shards[0].hold()
        channel = servers.channel()
        channel.send(TakeSnapshot(1, "one", str(tmp_path), False, False))
        channel.send(AwaitSnapshot(2, "one"))
        channel.send(TakeSnapshot(3, "two", str(tmp_path), False, False))
        channel.send(AwaitSnapshot(4, "two"))
        event.set()
        with pytest.raises(CheckpointError, match="another snapshot was begun"):
            channel.answer(2)
        assert len(channel.answer(4)[0].files) == 3
