"""One worker with servers trains as one process does."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from loopback_servers import SEED, Servers
from torch import Tensor, nn
from torch.optim import Adam

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.strategies import AllReduce, ParameterServer
from flambeau.config.tables import TableSpec
from flambeau.data.batch import Batch
from flambeau.embeddings.in_process import InProcessTables
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import JobFailedError, ModelError
from flambeau.parameter_server.client import ServerClient
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, StepShare, Strategy
from flambeau.strategies.group import Solo
from flambeau.strategies.local_tables import LocalTables
from flambeau.strategies.parameter_server import ParameterServerStrategy

ITEM = TableSpec("item", 3, dtype="fp64", optimizer=OptimizerSpec(name="adagrad", args={"lr": 0.2}))
RATE = 0.05


class Model(nn.Module):
    def __init__(self, prefetch: str | None) -> None:
        super().__init__()
        self.items = SparseEmbedding(ITEM, prefetch=prefetch)
        self.out = nn.Linear(3, 1, dtype=torch.float64)
        with torch.no_grad():
            self.out.weight.copy_(torch.tensor([[0.5, -0.25, 1.0]]))
            self.out.bias.zero_()

    def forward(self, items: Tensor) -> Tensor:
        return self.out(self.items(items))


def batches(count: int) -> list[Batch]:
    numbers = torch.Generator().manual_seed(1)
    return [Batch({"item": torch.randint(0, 15, (8,), generator=numbers)}, 8) for _ in range(count)]


def train(strategy: Strategy, model: nn.Module, given: list[Batch]) -> list[float]:
    """The losses, with a rate that falls as a schedule would have it."""
    optimizer = Adam(model.parameters(), lr=RATE)
    forward = strategy.attach(model, {"": optimizer}, own_step=False)
    losses = []
    for number, batch in enumerate(given):
        optimizer.param_groups[0]["lr"] = RATE / (1 + number)
        upcoming = given[number + 1] if number + 1 < len(given) else None
        strategy.look_ahead(batch, upcoming)
        scale = strategy.begin(StepShare(8, 8, number))
        loss = (forward(batch["item"]) - 1.0).square().mean()
        losses.append(loss.item())
        strategy.backward(loss * scale, last=True)
        strategy.update()
    strategy.synchronize()
    return losses


def served(client: ServerClient, clipping: Clipping | None = None, **settings: Any) -> Strategy:
    asynchronous = ParameterServer(consistency="asynchronous", **settings)
    return ParameterServerStrategy(asynchronous, client, Solo(), clipping or Clipping(), RATE)


@pytest.fixture
def servers() -> Iterator[Servers]:
    with Servers(2, optimizer=Adam) as servers:
        yield servers


@pytest.mark.parametrize("prefetch", [None, "item"])
@pytest.mark.parametrize("clipping", [Clipping(), Clipping(norm=0.1), Clipping(value=0.01)])
def test_it_learns_what_one_process_learns(servers: Servers, prefetch, clipping) -> None:
    given = batches(10)
    alone, together = Model(None), Model(prefetch)
    own = LocalTables(InProcessTables(SEED))
    strategy = AllReduceStrategy(AllReduce(), Solo(), clipping, own, RATE)
    expected = train(strategy, alone, given)
    found = train(served(servers.client(), clipping), together, given)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    for one, other in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_prefetching_changes_no_bit(servers: Servers) -> None:
    given = batches(10)
    first = train(served(servers.client()), Model("item"), given)
    with Servers(2, optimizer=Adam) as others:
        assert first == train(served(others.client()), Model(None), given)


def test_ids_of_fewer_bits_are_fetched_early(servers: Servers) -> None:
    given = batches(10)
    narrow = [Batch({"item": batch["item"].int()}, batch.size) for batch in given]
    strategy = served(servers.client())
    first = train(strategy, Model("item"), narrow)
    assert strategy.summary()["prefetch_misses"] == 0
    with Servers(2, optimizer=Adam) as others:
        assert first == train(served(others.client()), Model("item"), given)


def test_a_gradient_that_is_not_finite_ends_the_job(servers: Servers) -> None:
    model = Model(None)
    strategy = served(servers.client())
    strategy.attach(model, {"": Adam(model.parameters(), lr=RATE)}, own_step=False)
    strategy.begin(StepShare(8, 8, 3))
    strategy.backward(model(torch.arange(2)).sum() * torch.nan, last=True)
    expected = r"gradient of table 'item' in batch 3 of epoch 0 is not finite: .*non_finite='skip'"
    with pytest.raises(JobFailedError, match=expected):
        strategy.update()


def test_a_gradient_that_is_not_finite_may_be_left_out(servers: Servers) -> None:
    model = Model("item")
    strategy = served(servers.client(), non_finite="skip")
    strategy.attach(model, {"": Adam(model.parameters(), lr=RATE)}, own_step=False)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    strategy.begin(StepShare(8, 8, 0))
    strategy.backward(model(torch.arange(2)).sum() * torch.nan, last=True)
    strategy.update()
    strategy.synchronize()
    for one, other in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=0, atol=0)
    assert strategy.summary()["outcome_skipped"] == 1


def test_who_was_idle_takes_what_others_have_made_of_the_weights(servers: Servers) -> None:
    idle, busy = Model(None), Model(None)
    waiting = served(servers.client())
    waiting.attach(idle, {"": Adam(idle.parameters(), lr=RATE)}, own_step=False)
    train(served(servers.client()), busy, batches(3))
    assert not torch.equal(idle.out.weight, busy.out.weight)
    before = waiting.table_seconds()
    waiting.catch_up()
    after = waiting.table_seconds()
    assert after.wait > before.wait
    assert after.sparse >= before.sparse
    assert torch.equal(idle.out.weight, busy.out.weight)


def test_servers_take_one_update_a_step(servers: Servers) -> None:
    model = Model(None)
    strategy = served(servers.client())
    strategy.attach(model, {"": Adam(model.parameters(), lr=RATE)}, own_step=True)
    strategy.begin(StepShare(8, 8, 0))
    with pytest.raises(ModelError, match="the step before did not call update"):
        strategy.begin(StepShare(8, 8, 1))
    strategy.update()
    with pytest.raises(ModelError, match="called twice in a step"):
        strategy.update()


def test_a_worker_takes_the_weights_that_the_servers_have(servers: Servers) -> None:
    first, second = Model(None), Model(None)
    with torch.no_grad():
        first.out.bias.fill_(4.0)
    for rank, model in enumerate((first, second)):
        strategy = served(servers.client(rank))
        strategy.attach(model, {"": Adam(model.parameters(), lr=RATE)}, own_step=False)
    assert second.out.bias.item() == 4.0
