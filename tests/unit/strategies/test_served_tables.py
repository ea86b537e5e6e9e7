"""Pushes that are on their way, and what is counted of them."""

import numpy as np
import torch
from loopback_servers import Servers, sgd
from torch import nn

from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import TableGradient
from flambeau.embeddings.external import initial_rows
from flambeau.embeddings.externalizing import externalize
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.parameter_server.client import Update
from flambeau.parameter_server.protocol import Key
from flambeau.strategies.server_tables import WINDOW, ServerTables

ITEM = TableSpec("item", 2, dtype="fp64", optimizer=sgd())


def served(servers: Servers, model: nn.Module, *, prefetch: bool = False) -> ServerTables:
    tables = ServerTables(servers.worker(0, [ITEM]), prefetch=prefetch)
    tables.attach(model)
    return tables


def push(tables: ServerTables, batch: int, *, task: int = 0) -> None:
    own = TableGradient(ITEM, np.arange(3), np.ones((3, 2)))
    tables.push(Update(Key(0, 0, task, batch), 1, 1, 1.0), [own])


def test_a_model_looks_up_at_the_servers_and_its_gradients_go_there() -> None:
    with Servers(2) as servers:
        model = SparseEmbedding(ITEM)
        tables = served(servers, model)
        ids = torch.tensor([1, 2, 2])
        before = model(ids)
        before.sum().backward()
        tables.push(Update(Key(0, 0, 0, 0), 1, 1, 1.0), tables.lookups.gradients())
        tables.settle()
        expected = before.detach() - torch.tensor([[1.0], [2.0], [2.0]])
        torch.testing.assert_close(model(ids).detach(), expected)


def test_the_last_pushes_need_not_be_waited_for() -> None:
    with Servers(2) as servers:
        tables = served(servers, SparseEmbedding(ITEM))
        for batch in range(6):
            push(tables, batch)
        tables.settle(keep=4)
        assert sum(tables.outcomes.values()) == 2
        assert tables.settle(keep=4) is None
        result = tables.settle()
        assert result is not None
        assert tables.outcomes == {"applied": 6}


def test_outcomes_are_counted() -> None:
    with Servers(1) as servers:
        tables = served(servers, SparseEmbedding(ITEM))
        for batch in (0, 1, 1):
            push(tables, batch)
        tables.settle()
        assert tables.outcomes == {"applied": 2, "duplicate": 1}


def test_rows_that_come_back_have_to_be_waited_for() -> None:
    with Servers(1) as servers:
        early = served(servers, SparseEmbedding(ITEM, prefetch="item"), prefetch=True)
        late = served(servers, SparseEmbedding(ITEM, prefetch="item"), prefetch=False)
        unnamed = served(servers, SparseEmbedding(ITEM), prefetch=True)
        assert [tables.prefetches for tables in (early, late, unnamed)] == [True, False, False]
        assert [tables.window for tables in (early, late, unnamed)] == [0, WINDOW, WINDOW]


def test_the_summary_tells_how_often_ids_were_repeated() -> None:
    with Servers(2) as servers:
        model = SparseEmbedding(ITEM)
        tables = served(servers, model)
        model(torch.tensor([1, 1, 1, 2]))
        summary = tables.summary()
        assert (summary["ids_seen"], summary["ids_distinct"]) == (4, 2)
        assert (summary["pulls"], summary["rows_pulled"]) == (1, 2)
        assert (summary["prefetch_hits"], summary["prefetch_misses"]) == (0, 0)
        assert summary["pull_seconds_p99"] >= summary["pull_seconds_p50"] > 0
        assert summary["requests_resent"] == 0


def test_tables_begin_with_the_weights_of_the_embeddings_they_replace() -> None:
    model = nn.Sequential(nn.Embedding(70_000, 2, dtype=torch.float64))
    weight = model[0].weight.detach().clone()
    externalize(model)
    with Servers(2) as servers:
        client = servers.client()
        client.open([spec for spec, _, _ in initial_rows(model)], None)
        tables = ServerTables(client, prefetch=False)
        tables.load_initial(model)
        client.initialise(None)
        tables.attach(model)
        torch.testing.assert_close(model(torch.arange(70_000)).detach(), weight, rtol=0, atol=0)
