import pytest
import torch

from flambeau.config import optim
from flambeau.config.tables import TableSpec
from flambeau.data import jagged
from flambeau.data.jagged import Jagged, from_lists
from flambeau.embeddings import SparseEmbedding, train_in_process
from flambeau.embeddings.fields import field_ids, table_id
from flambeau.errors import DataError, ModelError

LISTS = from_lists([[1, 2]])


def trained(module: SparseEmbedding) -> SparseEmbedding:
    train_in_process(module, optim("sgd", lr=0.1))
    return module


def test_a_jagged_column_reads_as_ids_and_offsets_do():
    module = trained(SparseEmbedding(TableSpec("t", 3), "sum"))
    bags = from_lists([[1, 2], [], [3]], [[0.5, 2.0], [], [1.0]])
    expected = module(bags.ids, bags.offsets[:-1], bags.values)
    assert torch.equal(module(bags), expected)
    assert module(bags).shape == (3, 3)
    padded, mask = trained(SparseEmbedding(TableSpec("u", 3)))(bags.plain())
    assert padded.shape == (3, 2, 3)
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


def test_fields_have_rows_of_their_own():
    module = trained(SparseEmbedding(TableSpec("t", 4), "sum", fields=2))
    ids = torch.tensor([[7, 7], [8, 7]])
    rows = module(ids)
    assert rows.shape == (2, 2, 4)
    assert not torch.equal(rows[0, 0], rows[0, 1])
    assert torch.equal(rows[0, 1], rows[1, 1])
    bags = jagged.stack([ids])
    assert torch.equal(module(bags), rows)


def test_a_missing_id_of_a_field_is_zero():
    module = trained(SparseEmbedding(TableSpec("t", 2), "sum", fields=2))
    bags = Jagged(torch.tensor([5]), torch.tensor([0, 0, 1]), width=2)
    rows = module(bags)
    assert torch.equal(rows[0, 0], torch.zeros(2))
    assert torch.equal(rows[0, 1], module(torch.tensor([[0, 5]]))[0, 1])


@pytest.mark.parametrize("fields", [None, 2])
def test_missing_ids_are_zeros_in_the_shape_of_the_tensor(fields):
    module = trained(SparseEmbedding(TableSpec("t", 3), fields=fields))
    ids = torch.tensor([[5, 6], [7, 8]])
    bags = jagged.with_gaps(ids, missing=6)
    rows, whole = module(bags), module(ids)
    assert rows.shape == whole.shape == (2, 2, 3)
    assert torch.equal(rows[0, 1], torch.zeros(3))
    assert torch.equal(rows[1], whole[1])
    assert torch.equal(bags.in_places(6), ids)


def test_a_missing_id_adds_no_gradient_and_no_row():
    module = SparseEmbedding(TableSpec("t", 2))
    tables = train_in_process(module, optim("sgd", lr=1.0))
    rows = module(jagged.with_gaps(torch.tensor([5, 0, 6]), missing=0))
    assert rows.shape == (3, 2)
    before = rows.detach().clone()
    rows.sum().backward()
    tables.step()
    after = module(torch.tensor([5, 6]))
    assert torch.allclose(after, before[[0, 2]] - 1.0)
    module.eval()
    assert torch.equal(module(torch.tensor([0])), torch.zeros(1, 2))  # the default row


def test_an_id_in_the_table_can_be_turned_back():
    salted = field_ids(torch.tensor([[3, 3, 3]]), 3)
    assert len(set(salted.tolist())) == 3
    assert [table_id(int(id), field) for field, id in enumerate(salted)] == [3, 3, 3]


def test_the_same_ids_are_salted_once():
    module = trained(SparseEmbedding(TableSpec("t", 2), "sum", fields=2))
    ids = torch.tensor([[1, 2]])
    folds = module.lookups.folds
    assert folds.flat(ids, 2) is folds.flat(ids, 2)
    assert folds.flat(ids, 2) is not folds.flat(ids, 1)


@pytest.mark.parametrize(
    ("module", "ids", "message"),
    [
        ({"fields": 3}, torch.tensor([[1, 2]]), "one id for each of 3 fields"),
        ({"fields": 3}, jagged.stack([torch.tensor([[1, 2]])]), r"2 bags of ids; give one for"),
        ({"pooling": "none"}, jagged.stack([torch.tensor([1]), LISTS]), "2 bags in a row need"),
        ({"pooling": "mean"}, from_lists([[1]], [[2.0]]), "weights are for pooling='sum'"),
    ],
)
def test_bags_that_do_not_fit_are_refused(module, ids, message):
    settings = {"pooling": "sum", **module}
    with pytest.raises(ModelError, match=message):
        trained(SparseEmbedding(TableSpec("t", 2), **settings))(ids)


def test_ids_that_know_their_fields_are_grouped_by_them():
    module = trained(SparseEmbedding(TableSpec("t", 2), "sum", fields=2))
    offsets = torch.tensor([0, 2, 3])
    known = Jagged(torch.tensor([5, 4, 6]), offsets, fields=torch.tensor([1, 0, 1]))
    expected = module(Jagged(torch.tensor([4, 5, 6]), torch.tensor([0, 1, 2, 2, 3]), width=2))
    assert torch.equal(module(known), expected)
    with pytest.raises(DataError, match="row 1 of the batch has 1 id"):
        module(Jagged(torch.tensor([5, 4, 6]), offsets))


@pytest.mark.parametrize("fields", [None, torch.tensor([1, 0, 0, 1])])
def test_ids_are_fetched_early_as_they_are_looked_up(fields):
    module = trained(SparseEmbedding(TableSpec("t", 2), "sum", fields=2))
    column = Jagged(torch.tensor([5, 4, 6, 4]), torch.tensor([0, 2, 4]), fields=fields)
    early = module.lookups.folds.flat(column, 2)
    module(column)
    assert module.lookups.folds.flat(column, 2) is early
    looked_up = module.lookups.misses
    module.lookups.rows(module.spec, early, training=True)
    assert (module.lookups.hits, module.lookups.misses) == (looked_up, looked_up)


def test_sums_and_squares_come_together():
    module = trained(SparseEmbedding(TableSpec("t", 3), "sum_and_squares"))
    each = SparseEmbedding(TableSpec("t", 3))
    each.lookups = module.lookups
    bags = from_lists([[1, 2], [], [3]], [[0.5, 2.0], [], [-1.0]])
    weighted = each(bags.ids) * bags.values[:, None]
    zeros = torch.zeros(3)
    total, squares = module(bags)
    torch.testing.assert_close(total, torch.stack([weighted[:2].sum(0), zeros, weighted[2]]))
    expected = torch.stack([weighted[:2].square().sum(0), zeros, weighted[2].square()])
    torch.testing.assert_close(squares, expected)
    both = module(torch.tensor([[1, 2], [3, 3]]))
    assert [part.shape for part in both] == [(2, 3), (2, 3)]


def test_sums_and_squares_are_not_for_fields():
    with pytest.raises(ModelError, match="'sum_and_squares' is for bags without fields"):
        SparseEmbedding(TableSpec("t", 3), "sum_and_squares", fields=2)


def test_bags_may_be_made_in_inference_mode():
    module = trained(SparseEmbedding(TableSpec("t", 2), "sum", fields=2))
    bags = jagged.stack([torch.tensor([[1, 2], [3, 4]])])
    with torch.inference_mode():
        assert torch.equal(module(bags.slice(0, 1)), module(torch.tensor([[1, 2]])))
