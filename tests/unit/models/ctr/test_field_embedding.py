import pytest
import torch

from flambeau.config import optim
from flambeau.data import jagged
from flambeau.data.jagged import Jagged, from_lists
from flambeau.embeddings import train_in_process
from flambeau.errors import DataError, ModelError
from flambeau.models.ctr.layers.fields import FieldEmbedding


@pytest.fixture
def embedding() -> FieldEmbedding:
    module = FieldEmbedding(2, 3)
    train_in_process(module, optim("sgd", lr=0.1))
    return module


def test_all_forms_of_ids_give_the_same_rows(embedding: FieldEmbedding) -> None:
    ids = torch.tensor([[4, 5], [6, 4]])
    rows = embedding(ids)
    assert rows.shape == (2, 2, 3)
    flat = ids.flatten()
    offsets = torch.tensor([0, 2, 4])
    assert torch.equal(embedding(jagged.stack([ids])), rows)
    assert torch.equal(embedding(Jagged(flat, offsets)), rows)
    swapped = Jagged(flat.flip(0), offsets, None, torch.tensor([1, 0, 1, 0]))
    assert torch.equal(embedding(swapped), rows.flip(0))


def test_values_multiply(embedding: FieldEmbedding) -> None:
    rows = embedding(from_lists([[4, 5]], [[2.0, 0.0]]))
    assert torch.equal(rows[0, 0], 2 * embedding(torch.tensor([[4, 5]]))[0, 0])
    assert torch.equal(rows[0, 1], torch.zeros(3))


def test_what_does_not_fit_is_refused(embedding: FieldEmbedding) -> None:
    with pytest.raises(DataError, match="row 1 of the batch has 3 ids"):
        embedding(from_lists([[1, 2], [1, 2, 3]]))
    with pytest.raises(ModelError, match="one id for each of 2 fields"):
        embedding(torch.tensor([[1, 2, 3]]))
    with pytest.raises(ModelError, match="fields=0"):
        FieldEmbedding(0, 4)
