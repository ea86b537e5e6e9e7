"""Tables in this process, and training with them in a loop of one's own."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from flambeau.config.optimizer import optim
from flambeau.config.tables import TableSpec
from flambeau.embeddings import InProcessTables, SparseEmbedding, externalize, train_in_process
from flambeau.embeddings.attach import begin_without_rows
from flambeau.embeddings.backend import TableGradient
from flambeau.errors import ModelError

SPEC = TableSpec("t", 2, dtype="fp64")
IDS = np.array([3, -7])


def tables(lr: float = 1.0) -> InProcessTables:
    subject = InProcessTables(0, optim("sgd", lr=lr))
    subject.declare([SPEC])
    return subject


def test_the_factor_multiplies_the_learning_rate() -> None:
    subject = tables(lr=0.5)
    (before,) = subject.pull([(SPEC, IDS)], training=True)
    subject.push([TableGradient(SPEC, IDS, np.ones((2, 2)))], factor=0.1)
    (after,) = subject.pull([(SPEC, IDS)], training=False)
    np.testing.assert_allclose(before - after, 0.05)


def test_pulling_makes_no_rows() -> None:
    subject = tables()
    subject.pull([(SPEC, IDS)], training=True)
    assert subject.pull([(SPEC, IDS)], training=False)[0].tolist() == [[0.0, 0.0]] * 2


def test_a_table_begins_with_the_rows_of_its_file_until_it_is_emptied(tmp_path: Path) -> None:
    file = tmp_path / "vectors.parquet"
    pq.write_table(pa.table({"id": [3, -7], "vector": [[1.0, 2.0], [3.0, 4.0]]}), file)
    spec = TableSpec("words", 2, init=str(file))
    subject = InProcessTables()
    subject.declare([spec])
    assert subject.pull([(spec, IDS)], training=False)[0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    subject.empty(["words"])
    assert len(subject.tables["words"]) == 0


def test_a_spec_with_an_optimizer_keeps_it() -> None:
    subject = InProcessTables(0, optim("sgd", lr=1.0))
    subject.declare([TableSpec("own", 2, optimizer=optim("adagrad", lr=0.25)), SPEC])
    assert subject.tables["own"].optimizer.lr == 0.25
    assert subject.tables["t"].optimizer.lr == 1.0


def test_declaring_again_keeps_the_rows() -> None:
    subject = tables()
    subject.load(SPEC, IDS, np.ones((2, 2)))
    subject.declare([SPEC])
    assert subject.pull([(SPEC, IDS)], training=False)[0].tolist() == [[1.0, 1.0]] * 2


def test_declaring_another_spec_of_the_name_is_refused_with_both() -> None:
    differing = "named 't' and differ: dim=2 and 5, dtype='fp64' and 'fp32';"
    with pytest.raises(ModelError, match=differing):
        tables().declare([TableSpec("t", 5)])


def test_a_table_that_was_not_declared_is_named() -> None:
    with pytest.raises(ModelError, match="table 'other' is not known here"):
        tables().pull([(TableSpec("other", 2), IDS)], training=True)


def test_a_loop_of_ones_own_is_that_of_torch() -> None:
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.EmbeddingBag(50, 4, dtype=torch.float64), nn.Linear(4, 1).double())
    ours = nn.Sequential(nn.EmbeddingBag(50, 4, dtype=torch.float64), nn.Linear(4, 1).double())
    ours.load_state_dict(theirs.state_dict())
    externalize(ours)
    handle = train_in_process(ours, optim("adagrad", lr=0.1))
    plain = torch.optim.Adagrad(theirs.parameters(), lr=0.1)
    dense = torch.optim.Adagrad(ours.parameters(), lr=0.1)
    for seed in range(5):
        ids = torch.randint(0, 50, (8, 3), generator=torch.Generator().manual_seed(seed))
        for model, steps in ((theirs, [plain.step]), (ours, [dense.step, handle.step])):
            model.zero_grad()
            for part in ids.split(3):  # gradients of parts add up
                model(part).square().sum().backward()
            for step in steps:
                step()
    everything = torch.arange(50)[:, None]
    torch.testing.assert_close(ours.eval()(everything), theirs(everything))


def test_modules_with_one_spec_train_one_table() -> None:
    pair = nn.ModuleList([SparseEmbedding(SPEC), SparseEmbedding(SPEC, "sum")])
    handle = train_in_process(pair, optim("sgd", lr=1.0))
    one = torch.tensor([5])
    before = pair[0](one)
    (before.sum() + 2 * pair[1](one).sum()).backward()
    handle.step()
    torch.testing.assert_close(pair.eval()[0](one), before.detach() - 3.0)


def test_a_discarded_step_changes_nothing() -> None:
    module = SparseEmbedding(SPEC)
    handle = train_in_process(module, optim("sgd", lr=1.0))
    module(torch.tensor([5])).sum().backward()
    handle.discard()
    handle.step()
    assert len(handle.tables.tables["t"]) == 0


def test_the_seed_decides_first_values() -> None:
    firsts = []
    for seed in (0, 0, 1):
        module = SparseEmbedding(SPEC)
        train_in_process(module, seed=seed)
        firsts.append(module(torch.tensor([5])).tolist())
    assert firsts[0] == firsts[1] != firsts[2]


def test_a_table_without_an_optimizer_is_not_trained() -> None:
    module = SparseEmbedding(TableSpec("item", 2))
    handle = train_in_process(module)
    module(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ModelError, match="table 'item' has no optimizer"):
        handle.step()


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_says_that_it_has_no_rows(copy_of: Callable[[Any], Any]) -> None:
    module = SparseEmbedding(TableSpec("item", 2)).eval()
    assert copy_of(module)(torch.tensor([1])).shape == (1, 2)
    train_in_process(module)
    other = copy_of(copy_of(module))
    with pytest.raises(ModelError, match="copy of a model whose table 'item'"):
        other(torch.tensor([1]))
    with pytest.raises(ModelError, match="rows that training cannot use"):
        begin_without_rows(other, others=False)
    begin_without_rows(other, others=True)
    train_in_process(other)
    assert other(torch.tensor([1])).shape == (1, 2)
