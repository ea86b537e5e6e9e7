"""Gradients that wait for the coordinator's word: the test decides, as the coordinator would."""

import math

import numpy as np
import pytest
import torch
from loopback_servers import SEED, Servers, sgd
from torch import nn

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.coordination.round_messages import NormReply, NormRequest, Staged
from flambeau.embeddings.backend import TableGradient
from flambeau.parameter_server.client import PendingPush, ServerClient, Update
from flambeau.parameter_server.protocol import Key
from flambeau.tables.table import Table

ADAGRAD = OptimizerSpec(name="adagrad", args={"lr": 0.1})
ITEM = TableSpec("item", 3, dtype="fp64", optimizer=ADAGRAD)
PLAIN = TableSpec("item", 3, dtype="fp64", optimizer=sgd())
ALL = np.arange(40)


def begin(
    client: ServerClient, number: int, weight: int, dense: list[float], **changes
) -> PendingPush:
    """Push a dense gradient for a round."""
    values = {"rows": weight, "planned": 8, "weight": float(weight), "rates": [1.0], **changes}
    return client.begin_push(Update(Key(0, 0, 0, number), **values), [], np.array(dense))


def weights(client: ServerClient, numel: int) -> np.ndarray:
    out = np.empty(numel)
    client.pull_dense(out)
    return out


def random_push(numbers: np.random.Generator) -> tuple[TableGradient, np.ndarray]:
    ids = numbers.choice(ALL, size=12, replace=False)
    return TableGradient(ITEM, ids, numbers.normal(size=(12, 3))), numbers.normal(size=7)


def test_two_workers_and_two_shards_equal_one_process() -> None:
    numbers = np.random.default_rng(0)
    start = numbers.normal(size=7)
    table, weight = Table(ITEM, SEED), nn.Parameter(torch.from_numpy(start.copy()))
    adam = torch.optim.Adam([weight], lr=0.05)
    with Servers(2, lockstep=True, optimizer=torch.optim.Adam) as servers:
        workers = [servers.worker(rank, [ITEM], start.tolist()) for rank in range(2)]
        for number in range(5):
            shares = [3, 5]
            pushes = [random_push(numbers) for _ in shares]
            pending = []
            for client, rows, (own, dense) in zip(workers, shares, pushes, strict=True):
                key = Key(0, 0, 0, number)
                update = Update(key, rows, 8, float(rows), rates=[0.05], factor=0.5)
                pending.append(client.begin_push(update, [own], dense))
            servers.hear(2)
            servers.commit(number, [0, 1])
            out = np.empty(7)
            for client, push in zip(workers, pending, strict=True):
                result = client.finish_push(push, out)
                assert (result.outcome, result.round) == ("applied", number + 1)
            summed = np.zeros((ALL.size, 3))
            for rows, (own, _) in zip(shares, pushes, strict=True):
                summed[own.ids] += own.grads * rows / 8
            touched = np.unique(np.concatenate([own.ids for own, _ in pushes]))
            table.push(touched, summed[touched], 0.1 * 0.5)
            mean = sum(rows / 8 * dense for rows, (_, dense) in zip(shares, pushes, strict=True))
            weight.grad = torch.from_numpy(mean)
            adam.step()
            np.testing.assert_allclose(out, weight.detach().numpy(), rtol=1e-12)
        (found,) = workers[1].pull([(ITEM, ALL)], training=True)
        np.testing.assert_allclose(found, table.pull(ALL, training=True), rtol=1e-12)


def test_every_shard_reports_what_it_holds() -> None:
    with Servers(2, lockstep=True) as servers:
        client = servers.worker(0, [], [0.0, 0.0])
        begin(client, 0, 3, [1.0, 1.0], finite=False)
        reports = [report for (report,) in servers.hear()]
        assert reports == [Staged(shard, 0, 0, 0, 3, 8, False) for shard in range(2)]


def test_nothing_changes_before_the_decision() -> None:
    with Servers(1, lockstep=True) as servers:
        client, other = servers.worker(0, [], [1.0]), servers.worker(1, [], [1.0])
        pending = begin(client, 0, 1, [1.0])
        servers.hear()
        assert weights(other, 1).tolist() == [1.0]
        servers.commit(0, [0])
        client.finish_push(pending)
        assert weights(other, 1).tolist() == [0.0]


def test_a_worker_that_is_not_in_the_round_is_late_and_goes_on_with_the_next() -> None:
    with Servers(2, lockstep=True) as servers:
        workers = [servers.worker(rank, [], [1.0, 1.0]) for rank in range(2)]
        first, second = (begin(worker, 0, 1, [0.5, 0.5]) for worker in workers)
        servers.hear(2)
        servers.commit(0, [1], dropped=1)
        results = [w.finish_push(p) for w, p in zip(workers, (first, second), strict=True)]
        assert [result.outcome for result in results] == ["late", "applied"]
        assert [(result.round, result.dropped) for result in results] == [(1, 1), (1, 1)]
        assert weights(workers[0], 2).tolist() == [0.5, 0.5]


def test_a_gradient_that_comes_after_its_round_is_late_at_once() -> None:
    with Servers(1, lockstep=True) as servers:
        workers = [servers.worker(rank, [], [1.0]) for rank in range(2)]
        first = begin(workers[0], 0, 1, [0.5])
        servers.hear()
        servers.commit(0, [0])
        workers[0].finish_push(first)
        result = workers[1].finish_push(begin(workers[1], 0, 1, [9.0]))
        assert (result.outcome, result.round) == ("late", 1)
        # The coordinator counts it.
        assert servers.hear() == [[Staged(0, 0, 0, 1, 1, 8, True)]]
        assert weights(workers[1], 1).tolist() == [0.5]


def test_a_gradient_that_comes_before_its_round_waits_for_it() -> None:
    with Servers(1, lockstep=True) as servers:
        workers = [servers.worker(rank, [], [1.0]) for rank in range(2)]
        early = begin(workers[1], 1, 1, [0.125])
        weights(workers[1], 1)  # so the shard has seen it
        first = begin(workers[0], 0, 1, [0.5])
        (report,) = servers.hear()[0]
        assert (report.worker, report.round) == (0, 0)
        servers.commit(0, [0])
        workers[0].finish_push(first)
        (report,) = servers.hear()[0]
        assert (report.worker, report.round) == (1, 1)
        servers.commit(1, [1])
        assert workers[1].finish_push(early).outcome == "applied"
        assert weights(workers[1], 1).tolist() == [0.375]


def test_a_round_that_is_not_applied_changes_nothing() -> None:
    with Servers(2, lockstep=True) as servers:
        client = servers.worker(0, [], [1.0, 1.0])
        pending = begin(client, 0, 1, [math.nan, 1.0], finite=False)
        servers.hear()
        servers.commit(0, [0], apply=False, dropped=8)
        result = client.finish_push(pending)
        assert (result.outcome, result.round, result.dropped) == ("skipped", 1, 8)
        assert weights(client, 2).tolist() == [1.0, 1.0]


def test_the_last_round_tells_the_workers_to_stop() -> None:
    with Servers(2, lockstep=True) as servers:
        client = servers.worker(0, [], [1.0, 1.0])
        pending = begin(client, 0, 1, [0.5, 0.5])
        servers.hear()
        servers.commit(0, [0], stop=True)
        assert client.finish_push(pending).stop


def test_a_decision_that_is_said_twice_counts_once() -> None:
    with Servers(1, lockstep=True) as servers:
        client = servers.worker(0, [], [1.0])
        pending = begin(client, 0, 1, [0.5])
        servers.hear()
        servers.commit(0, [0])
        servers.commit(0, [0])
        assert client.finish_push(pending).round == 1
        assert weights(client, 1).tolist() == [0.5]


def test_a_push_that_comes_again_is_reported_again_and_counts_once() -> None:
    with Servers(1, lockstep=True) as servers:
        client = servers.worker(0, [], [1.0])
        begin(client, 0, 1, [0.5])
        again = begin(client, 0, 1, [0.5])
        assert servers.hear(2)[0] == [Staged(0, 0, 0, 0, 1, 8, True)] * 2
        servers.commit(0, [0])
        assert client.finish_push(again).outcome == "applied"
        assert client.finish_push(begin(client, 0, 1, [0.5])).outcome == "applied"
        assert weights(client, 1).tolist() == [0.5]


def test_shards_tell_the_norm_of_the_mean_and_scale_it() -> None:
    with Servers(2, lockstep=True) as servers:
        workers = [servers.worker(rank, [PLAIN], [0.0] * 4) for rank in range(2)]
        (before,) = workers[0].pull([(PLAIN, ALL)], training=True)
        own = TableGradient(PLAIN, ALL, np.full((40, 3), 2.0))
        update = Update(Key(0, 0, 0, 0), 1, 2, 1.0, rates=[1.0])
        pending = [w.begin_push(update, [own], np.array([4.0] * 4)) for w in workers]
        servers.hear(2)
        servers.decide(NormRequest(0, [0, 1]))
        sums = [report for (report,) in servers.hear()]
        assert [(s.shard, s.generation, s.round) for s in sums] == [(0, 0, 0), (1, 0, 0)]
        assert all(isinstance(report, NormReply) for report in sums)
        assert sum(report.squares for report in sums) == pytest.approx(120 * 4 + 4 * 16)
        servers.commit(0, [0, 1], scale=0.25)
        for worker, push in zip(workers, pending, strict=True):
            worker.finish_push(push)
        assert weights(workers[0], 4).tolist() == [-1.0] * 4
        (after,) = workers[0].pull([(PLAIN, ALL)], training=True)
        np.testing.assert_allclose(after, before - 0.5, rtol=1e-14)


def test_the_mean_is_clamped_before_it_is_applied() -> None:
    with Servers(2, lockstep=True, clip_value=0.25) as servers:
        client = servers.worker(0, [], [0.0, 0.0])
        pending = begin(client, 0, 1, [8.0, -0.125])
        servers.hear()
        servers.commit(0, [0])
        client.finish_push(pending)
        assert weights(client, 2).tolist() == [-0.25, 0.125]


def test_a_worker_without_rows_takes_part_with_nothing() -> None:
    with Servers(2, lockstep=True) as servers:
        workers = [servers.worker(rank, [PLAIN], [1.0, 1.0]) for rank in range(2)]
        first = begin(workers[0], 0, 4, [0.5, 0.5])
        idle = workers[1].begin_push(Update(Key(0, 0, 0, 0), 0, 4, 0.0, rates=[1.0]), [])
        servers.hear(2)
        servers.commit(0, [0, 1])
        assert workers[0].finish_push(first).outcome == "applied"
        out = np.empty(2)
        assert workers[1].finish_push(idle, out).outcome == "applied"
        assert out.tolist() == [0.5, 0.5]


def test_rows_that_are_wanted_come_after_the_round() -> None:
    with Servers(2, lockstep=True) as servers:
        client = servers.worker(0, [PLAIN])
        (before,) = client.pull([(PLAIN, ALL)], training=True)
        own = TableGradient(PLAIN, ALL, np.ones((40, 3)))
        update = Update(Key(0, 0, 0, 0), 1, 1, 1.0)
        pending = client.begin_push(update, [own], want=[(PLAIN, ALL[:5])])
        servers.hear()
        servers.commit(0, [0])
        (found,) = client.finish_push(pending).rows
        np.testing.assert_allclose(found, before[:5] - 1.0, rtol=1e-14)


def test_a_worker_that_waits_for_a_round_hears_that_the_server_is_alive(monkeypatch) -> None:
    monkeypatch.setattr("flambeau.parameter_server.service.BREATH_SECONDS", 0.0)
    with Servers(1, lockstep=True) as servers:
        client = servers.worker(0, [], [1.0])
        begin(client, 0, 1, [0.5])
        servers.hear()
        (channel,) = client.channels
        message, _ = channel._client.receive(10.0)
        assert type(message).__name__ == "Waiting"
        assert len(channel._open) == 1
