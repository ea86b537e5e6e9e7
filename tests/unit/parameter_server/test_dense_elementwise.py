"""Which optimizers may be cut into ranges."""

import pytest
import torch
from torch.optim import Optimizer

from flambeau.config.optimizer import DENSE_OPTIMIZERS
from flambeau.errors import ModelError
from flambeau.parameter_server.elementwise import require_element_wise


class Plain(Optimizer):
    """Gradient descent; children change the direction."""

    def __init__(self, groups, lr: float = 0.1) -> None:
        super().__init__(groups, {"lr": lr})

    def direction(self, parameter: torch.Tensor) -> torch.Tensor:
        return parameter.grad

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * self.direction(parameter)


class TrustRatio(Plain):
    """Scaled by the norm of the weights, as LAMB does."""

    def direction(self, parameter):
        return parameter.grad * parameter.norm() / parameter.grad.norm()


class Clipped(Plain):
    """Not more than a norm of 10."""

    def direction(self, parameter):
        return parameter.grad / max(1.0, float(parameter.grad.norm()) / 10)


class Centralised(Plain):
    """Of matrices, the mean of each row is taken off."""

    def direction(self, parameter):
        return parameter.grad - (parameter.grad.mean(1, keepdim=True) if parameter.ndim > 1 else 0)


class CountsElsewhere(Plain):
    """Keeps a number that no checkpoint would have."""

    def __init__(self, groups) -> None:
        super().__init__(groups)
        self.steps = 0

    def direction(self, parameter):
        self.steps += 1
        return parameter.grad / self.steps


@pytest.mark.parametrize("name", DENSE_OPTIMIZERS)
def test_every_dense_optimizer_is_element_wise(name):
    require_element_wise(getattr(torch.optim, DENSE_OPTIMIZERS[name]))


def test_an_optimizer_of_ones_own_is_accepted():
    require_element_wise(Plain)


@pytest.mark.parametrize(
    "kind", [TrustRatio, Clipped, Centralised, CountsElsewhere, torch.optim.Adafactor]
)
def test_an_update_that_depends_on_other_weights_is_refused(kind):
    with pytest.raises(ModelError, match=f"{kind.__name__} is not element-wise .its update of a"):
        require_element_wise(kind)


def test_an_optimizer_that_needs_a_closure_is_refused():
    with pytest.raises(ModelError, match=r"LBFGS is not element-wise .*'closure'"):
        require_element_wise(torch.optim.LBFGS)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon before 2.9")
def test_an_optimizer_for_matrices_is_refused():
    with pytest.raises(ModelError, match=r"Muon is not element-wise .*2D"):
        require_element_wise(torch.optim.Muon)


def test_the_refusal_says_what_to_use():
    with pytest.raises(ModelError, match="use AllReduce, or one of adadelta, adagrad, adam,"):
        require_element_wise(TrustRatio)


class TrustRatioOnRequest(TrustRatio):
    """Only in groups with `trust=True`."""

    def direction(self, parameter):
        trusting = [group for group in self.param_groups if group.get("trust")]
        trusted = {weight for group in trusting for weight in group["params"]}
        return super().direction(parameter) if parameter in trusted else parameter.grad


@pytest.mark.parametrize("trusting", range(4))
def test_the_options_of_all_groups_are_tried(trusting):
    groups = [{"trust": group == trusting} for group in range(4)]
    with pytest.raises(ModelError, match="TrustRatioOnRequest"):
        require_element_wise(TrustRatioOnRequest, groups)


def test_options_that_make_no_difference_are_accepted():
    require_element_wise(TrustRatioOnRequest, [{"trust": False}] * 3)


def test_options_for_a_gpu_are_accepted():
    require_element_wise(torch.optim.Adam, [{"capturable": True, "fused": True}])


def test_a_learning_rate_of_zero_hides_nothing():
    with pytest.raises(ModelError, match="TrustRatio"):
        require_element_wise(TrustRatio, [{"lr": 0.0}])


def test_trying_leaves_the_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    require_element_wise(torch.optim.SGD)
    assert torch.rand(1) == expected
