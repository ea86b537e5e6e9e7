"""Where torch's one-pass kernels are used."""

import pytest
import torch
from torch import nn

from flambeau.parameter_server.fusing import fuse, start_momentum


def fused(kind: type, dtype: torch.dtype = torch.float32, **options) -> object:
    optimizer = kind([nn.Parameter(torch.zeros(2, dtype=dtype))], **options)
    fuse(optimizer)
    return optimizer.param_groups[0].get("fused")


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]
)
def test_kernels_are_fused_where_torch_can(kind):
    assert fused(kind) is True


@pytest.mark.parametrize(
    "options",
    [
        {"fused": False},
        {"foreach": True},
        {"maximize": True},
        {"differentiable": True},
        {"momentum": 0.9, "dampening": 0.5},
        {"dtype": torch.float16},
    ],
)
def test_options_may_exclude_it(options):
    assert fused(torch.optim.SGD, **options) is False


def test_an_optimizer_of_ones_own_is_left_as_it_is():
    class Mine(torch.optim.SGD):
        pass

    assert fused(Mine) is None


def test_momentum_that_is_there_stays():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], momentum=0.9, fused=True)
    optimizer.state[parameter]["momentum_buffer"] = torch.ones(2)
    start_momentum(optimizer)
    assert optimizer.state[parameter]["momentum_buffer"].tolist() == [1, 1]
