"""Rows that are fetched early are those that would be fetched late."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from loopback_servers import Servers
from torch import Tensor, nn

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.data.batch import Batch
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError
from flambeau.parameter_server.client import Update
from flambeau.parameter_server.protocol import Key
from flambeau.strategies.server_tables import ServerTables

ADAM = OptimizerSpec(name="adam", args={"lr": 0.3})
ITEM = TableSpec("item", 3, dtype="fp64", optimizer=ADAM)
USER = TableSpec("user", 2, optimizer=ADAM)


class Model(nn.Module):
    """Items of two columns of which one is announced, and users."""

    def __init__(self) -> None:
        super().__init__()
        self.items = SparseEmbedding(ITEM, prefetch="items")
        self.others = SparseEmbedding(ITEM, pooling="sum")
        self.users = SparseEmbedding(USER, prefetch="users")

    def forward(self, batch: Batch) -> Tensor:
        items = self.items(batch["items"]).sum(1) + self.others(batch["others"])
        return torch.cat([items, self.users(batch["users"]).double()], dim=1)


def batches(count: int, others: bool = True) -> list[Batch]:
    """Ids that come again soon; with `others` also items that are not announced."""
    numbers = torch.Generator().manual_seed(0)

    def ids(*shape: int) -> Tensor:
        return torch.randint(-12, 12, shape, generator=numbers)

    made = []
    for index in range(count):
        items = ids(6, 2)
        columns = {"items": items, "others": ids(6, 3) if others else items, "users": ids(6)}
        made.append(Batch(columns, 6, index=index))
    return made


class Worker:
    """Trains alone, at servers of its own."""

    def __init__(self, servers: Servers, *, prefetch: bool) -> None:
        self.model = Model()
        self.client = servers.worker(0, tables_of(self.model))
        self.tables = ServerTables(self.client, prefetch=prefetch)
        self.tables.attach(self.model)
        self.number = 0
        #: What the model gave, batch by batch.
        self.seen: list[Tensor] = []

    def train(self, batch: Batch, upcoming: Batch | None) -> None:
        self.tables.settle()
        self.tables.look_ahead(batch, upcoming)
        out = self.model(batch)
        self.seen.append(out.detach().clone())
        (out * torch.linspace(-1, 1, out.shape[1])).square().sum().backward()
        self.push()

    def push(self, *, skip: bool = False) -> None:
        gradients = self.tables.lookups.gradients()
        update = Update(Key(0, 0, 0, self.number), 6, 6, 6.0, finite=not skip)
        self.tables.push(update, [] if skip else gradients)
        self.number += 1

    def train_all(self, given: Sequence[Batch]) -> None:
        for batch, upcoming in zip(given, [*given[1:], None], strict=True):
            self.train(batch, upcoming)
        self.tables.settle()


def trained(
    given: Sequence[Batch], *, prefetch: bool, shards: int = 1, near: bool = True
) -> list[Tensor]:
    with Servers(shards, share=near) as servers:
        worker = Worker(servers, prefetch=prefetch)
        worker.train_all(given)
        return worker.seen


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.fixture(params=[True, False], ids=["near", "far"])
def near(request: pytest.FixtureRequest) -> bool:
    """Whether servers share memory with the worker, as those of its machine do."""
    return bool(request.param)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("others", [False, True])
def test_one_worker_sees_exactly_what_it_would_see_without(
    shards: int, others: bool, near: bool
) -> None:
    given = batches(8, others)
    found = trained(given, prefetch=True, shards=shards, near=near)
    assert_same(found, trained(given, prefetch=False, shards=shards))


def test_a_step_without_a_gradient_does_not_stop_it(near: bool) -> None:
    given = batches(5)
    runs = []
    for prefetch in (True, False):
        with Servers(1, share=near) as servers:
            worker = Worker(servers, prefetch=prefetch)
            worker.train(given[0], given[1])
            worker.tables.settle()
            worker.tables.look_ahead(given[1], given[2])
            worker.model(given[1])
            worker.push(skip=True)
            worker.train_all(given[2:])
            runs.append(worker.seen)
    assert_same(*runs)


def test_a_batch_that_was_not_announced_is_fetched_when_it_comes(near: bool) -> None:
    first, expected, came, last = batches(4)
    runs = []
    for prefetch in (True, False):
        with Servers(2, share=near) as servers:
            worker = Worker(servers, prefetch=prefetch)
            worker.train(first, expected)
            worker.train(came, None)
            worker.train(last, None)
            runs.append(worker.seen)
    assert_same(*runs)


def test_what_was_announced_is_not_pulled_again(near: bool) -> None:
    given = batches(5, others=False)
    with Servers(2, share=near) as servers:
        worker = Worker(servers, prefetch=True)
        worker.train_all(given)
        distinct = sum(
            len(batch["items"].unique()) + len(batch["users"].unique()) for batch in given
        )
        assert worker.tables.lookups.misses == 0
        summary = worker.tables.summary()
        assert summary["prefetch_misses"] == 0
        # Items are looked up twice in a step.
        items = sum(len(batch["items"].unique()) for batch in given)
        assert summary["prefetch_hits"] == distinct + items


def test_ids_that_were_not_announced_are_misses(near: bool) -> None:
    given = batches(5)
    with Servers(2, share=near) as servers:
        worker = Worker(servers, prefetch=True)
        worker.train_all(given)
        expected = sum(
            len(np.setdiff1d(batch["others"].numpy(), batch["items"].numpy())) for batch in given
        )
        assert expected > 0
        assert worker.tables.summary()["prefetch_misses"] == expected


@pytest.mark.parametrize(("share", "device"), [(False, "cpu"), (True, "meta")])
def test_ids_that_two_batches_have_come_back_with_the_push(share: bool, device: str) -> None:
    one, two = batches(2, others=False)
    with Servers(1, share=share) as servers:
        worker = Worker(servers, prefetch=True)
        # Of another device than the CPU, the servers have the cores for themselves.
        worker.model.elsewhere = nn.Parameter(torch.empty(1, device=device))
        worker.tables.attach(worker.model)
        worker.train_all([one, two])
        both = sum(
            len(np.intersect1d(one[name].numpy(), two[name].numpy())) for name in ("items", "users")
        )
        every = sum(
            len(batch[name].unique()) for batch in (one, two) for name in ("items", "users")
        )
        assert both > 0
        assert worker.client.near == share
        assert worker.client.counts["rows_pulled"] == every - both


def test_all_rows_from_servers_of_the_machine_come_back_with_the_push() -> None:
    one, two = batches(2, others=False)
    with Servers(2) as servers:
        worker = Worker(servers, prefetch=True)
        worker.train_all([one, two])
        assert worker.client.near
        assert worker.client.counts["rows_pulled"] == sum(
            len(one[name].unique()) for name in ("items", "users")
        )
        assert worker.tables.summary()["prefetch_misses"] == 0


def test_rows_from_servers_of_the_machine_know_of_other_workers_updates() -> None:
    one, two = batches(2, others=False)
    with Servers(1) as servers:
        worker, other = (Worker(servers, prefetch=True) for _ in range(2))
        worker.number = 1  # a later batch than the other's
        worker.tables.look_ahead(one, two)
        worker.model(one).square().sum().backward()
        other.train_all([two])
        worker.push()
        worker.tables.settle()
        assert worker.tables.outcomes["applied"] == other.tables.outcomes["applied"] == 1
        worker.tables.look_ahead(two, None)
        with torch.no_grad():
            plain = Worker(servers, prefetch=False).model(two)
        torch.testing.assert_close(worker.model(two).detach(), plain, rtol=0, atol=0)


def test_a_column_that_the_data_does_not_have_is_an_error_of_the_model() -> None:
    (batch,) = batches(1)
    without = Batch({"items": batch["items"], "others": batch["others"]}, 6)
    with Servers(1) as servers:
        worker = Worker(servers, prefetch=True)
        with pytest.raises(ModelError, match="prefetch='users' of table 'user': the batch has no"):
            worker.train(without, None)


def test_an_empty_batch_of_ids_is_announced_like_any_other(near: bool) -> None:
    empty = Batch(
        {
            "items": torch.empty(0, 2, dtype=torch.int64),
            "others": torch.empty(0, 3, dtype=torch.int64),
            "users": torch.empty(0, dtype=torch.int64),
        },
        0,
        index=7,
    )
    first, last = batches(2)
    found = trained([first, empty, last], prefetch=True, near=near)
    assert_same(found, trained([first, empty, last], prefetch=False))
