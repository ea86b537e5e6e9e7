import pytest
import torch
from torch import nn

from flambeau.strategies.sync_batch_norm import SyncBatchNorm, convert


def test_every_batch_norm_is_replaced_at_any_depth() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()))
    converted = convert(model)
    kinds = [type(module) for module in converted.modules() if not list(module.children())]
    assert kinds == [SyncBatchNorm, SyncBatchNorm, nn.ReLU]


def test_weights_and_statistics_are_the_same_objects() -> None:
    norm = nn.BatchNorm1d(2, eps=0.1, momentum=0.5)
    converted = convert(norm)
    assert isinstance(converted, SyncBatchNorm)
    assert converted.weight is norm.weight
    assert converted.running_mean is norm.running_mean
    assert (converted.eps, converted.momentum) == (0.1, 0.5)
    assert set(converted.state_dict()) == set(norm.state_dict())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept(training: bool) -> None:
    assert convert(nn.BatchNorm1d(2).train(training)).training is training


def test_in_evaluation_it_needs_nobody_and_equals_batch_norm() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean.fill_(0.5)
    norm.running_var.fill_(4.0)
    x = torch.randn(3, 2)
    expected = norm.eval()(x)
    assert torch.equal(convert(norm)(x), expected)


def test_an_input_without_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 dimensions, got 1"):
        SyncBatchNorm(2)(torch.zeros(2))


@pytest.mark.parametrize("affine", [True, False])
def test_without_weights_there_are_none(affine: bool) -> None:
    converted = convert(nn.BatchNorm1d(2, affine=affine))
    assert (converted.weight is not None) == affine
