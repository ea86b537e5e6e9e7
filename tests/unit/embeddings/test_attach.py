"""Finding the tables of a model and attaching them."""

import pytest
from matrix_tables import MatrixTables, matrix
from torch import nn

from flambeau.config.tables import TableSpec
from flambeau.embeddings.attach import EarlyColumn, attach, has_tables, prefetch_columns, tables_of
from flambeau.embeddings.lookups import Lookups
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError

USER, ITEM = TableSpec("user", 3), TableSpec("item", 3)


def model() -> nn.Module:
    history = SparseEmbedding(TableSpec("item", 3), "mean", prefetch="history")
    pair = nn.ModuleList([SparseEmbedding(ITEM, prefetch="item"), history])
    return nn.ModuleDict({"user": SparseEmbedding(USER), "pair": pair, "top": nn.Linear(3, 1)})


def test_modules_with_one_spec_have_one_table() -> None:
    assert tables_of(model()) == [USER, ITEM]


def test_two_tables_of_one_name_are_refused_with_both() -> None:
    pair = nn.ModuleList([SparseEmbedding(ITEM), SparseEmbedding(TableSpec("item", 4))])
    with pytest.raises(ModelError, match="named 'item' and differ: dim=3 and 4"):
        tables_of(pair)


def test_a_model_has_tables_if_a_module_looks_up() -> None:
    assert has_tables(model())
    assert not has_tables(nn.Linear(1, 1))


def test_attaching_declares_the_tables_and_reaches_every_module() -> None:
    backend = MatrixTables(matrix())
    lookups = Lookups(backend)
    subject = model()
    attach(subject, lookups)
    assert backend.declared == [USER, ITEM]
    modules = [module for module in subject.modules() if isinstance(module, SparseEmbedding)]
    assert [module.lookups for module in modules] == [lookups] * 3


def test_columns_to_prefetch_come_with_their_tables() -> None:
    assert prefetch_columns(model()) == [
        EarlyColumn(ITEM, "item", None),
        EarlyColumn(ITEM, "history", None),
    ]


def test_a_column_is_prefetched_once_for_a_table() -> None:
    twice = nn.ModuleList([SparseEmbedding(ITEM, prefetch="item") for _ in range(2)])
    assert prefetch_columns(twice) == [EarlyColumn(ITEM, "item", None)]
