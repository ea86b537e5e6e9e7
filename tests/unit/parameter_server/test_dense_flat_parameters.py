"""A worker's parameters as one piece of memory."""

import numpy as np
import pytest
import torch
from torch import nn

from flambeau.errors import ModelError, ProtocolError
from flambeau.parameter_server.flat_parameters import FlatParameters


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def flattened(model: nn.Module) -> FlatParameters:
    return FlatParameters(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_flattening_keeps_parameters_and_their_values():
    model = nn.Linear(3, 2)
    before = dict(model.named_parameters())
    values = torch.cat([model.weight.detach().reshape(-1), model.bias.detach()])
    flat = flattened(model)
    assert dict(model.named_parameters()) == before
    assert np.array_equal(flat.values, values.numpy())
    assert model.weight.shape == (2, 3)


def test_values_are_the_parameters_own_memory():
    model = nn.Linear(3, 2)
    flattened(model).values[:] = np.arange(8)
    assert model.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert model.bias.tolist() == [6, 7]


def test_loading_overwrites_from_the_start_given():
    model = nn.Linear(3, 2)
    flat = flattened(model)
    read_only = np.frombuffer(np.float32([1, 2, 3]).tobytes(), np.float32)
    flat.load(5, read_only)
    assert model.weight[1, 2] == 1
    assert model.bias.tolist() == [2, 3]


@pytest.mark.parametrize("start", [-1, 6, 9])
def test_values_beyond_the_model_are_refused(start):
    with pytest.raises(ProtocolError, match="of a model with 8"):
        flattened(nn.Linear(3, 2)).load(start, np.zeros(3, np.float32))


def test_a_model_that_was_flattened_still_learns():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    flat = flattened(model)
    model(torch.ones(1, 3)).sum().backward()
    gradient, absent = flat.gradient()
    assert gradient.tolist() == [1.0] * 8
    assert absent == []


def test_gradients_are_flattened_in_the_order_of_their_indices_not_of_their_memory():
    model = nn.Conv2d(2, 1, 2, bias=False)
    flat = flattened(model)
    numbers = torch.arange(8.0).view(1, 2, 2, 2)
    model.weight.grad = numbers.to(memory_format=torch.channels_last)
    assert flat.gradient()[0].tolist() == list(range(8))


def test_a_parameter_without_a_gradient_is_absent_and_zero():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2), nn.Linear(1, 1))
    flat = flattened(model)
    model[0].weight.grad = torch.full((1, 1), 5.0)
    model[1].bias.grad = torch.full((2,), 7.0)
    gradient, absent = flat.gradient()
    assert gradient.tolist() == [5, 0, 0, 0, 7, 7, 0, 0]
    assert absent == [1, 2, 4, 5]


def test_a_gradient_is_written_where_it_is_asked_for():
    model = nn.Linear(1, 1)
    flat = flattened(model)
    model(torch.full((1, 1), 3.0)).sum().backward()
    out = np.full(2, np.nan, np.float32)
    assert flat.gradient(out)[0] is out
    assert out.tolist() == [3, 1]


def test_a_gradient_in_new_memory_outlives_the_next():
    model = nn.Linear(1, 1)
    flat = flattened(model)
    model(torch.full((1, 1), 3.0)).sum().backward()
    first, _ = flat.gradient()
    model(torch.full((1, 1), 3.0)).sum().backward()
    flat.gradient()
    assert first.tolist() == [3, 1]


def test_tied_parameters_are_there_once_and_stay_tied():
    model = Tied()
    flat = flattened(model)
    assert flat.values.size == 9 + 3
    flat.values[:] = 4
    assert model.second.weight.data_ptr() == model.first.weight.data_ptr()
    assert model.second.weight[0, 0] == 4


def test_a_sparse_gradient_is_refused():
    model = nn.Embedding(5, 2, sparse=True)
    flat = flattened(model)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(ModelError, match="'weight' has a sparse gradient; use SparseEmbedding"):
        flat.gradient()


def test_parameters_on_several_devices_are_refused():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, device="meta"))
    with pytest.raises(ModelError, match="on 2 devices"):
        flattened(model)
