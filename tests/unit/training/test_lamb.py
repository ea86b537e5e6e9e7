"""LAMB against a plain statement of it, one number after the other."""

import copy
import math

import pytest
import torch
from torch import nn

from flambeau.config import CodeRef, optim
from flambeau.errors import ModelError
from flambeau.training.lamb import LAMB
from flambeau.training.optimizers import build_optimizers, optimizer_class

STEPS = 5


class Scalars:
    """One weight as a list of numbers, updated as in the paper (algorithm 2)."""

    def __init__(self, values, lr, betas, eps, weight_decay, bias_correction):
        self.values = list(values)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.weight_decay, self.bias_correction = weight_decay, bias_correction
        self.means, self.squares, self.count = [0.0] * len(values), [0.0] * len(values), 0

    def step(self, grads):
        self.count += 1
        first, second = self.betas
        updates = []
        for i, (value, grad) in enumerate(zip(self.values, grads, strict=True)):
            self.means[i] = first * self.means[i] + (1 - first) * grad
            self.squares[i] = second * self.squares[i] + (1 - second) * grad * grad
            mean, square = self.means[i], self.squares[i]
            if self.bias_correction:
                mean, square = mean / (1 - first**self.count), square / (1 - second**self.count)
            updates.append(mean / (math.sqrt(square) + self.eps) + self.weight_decay * value)
        long, wide = math.hypot(*self.values), math.hypot(*updates)
        ratio = long / wide if long > 0 and wide > 0 else 1.0
        pairs = zip(self.values, updates, strict=True)
        self.values = [value - self.lr * ratio * update for value, update in pairs]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(
    ("lr", "betas", "eps"), [(0.1, (0.9, 0.999), 1e-6), (2.0, (0.5, 0.7), 0.1)]
)
def test_it_is_what_the_paper_says(lr, betas, eps, weight_decay, bias_correction):
    options = {
        "lr": lr,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "bias_correction": bias_correction,
    }
    weights = [nn.Parameter(numbers(3, 4)), nn.Parameter(torch.zeros(4, dtype=torch.float64))]
    plain = [Scalars(weight.flatten().tolist(), **options) for weight in weights]
    optimizer = LAMB(weights, **options)
    for step in range(STEPS):
        for number, (weight, own) in enumerate(zip(weights, plain, strict=True)):
            weight.grad = numbers(*weight.shape, seed=10 * step + number)
            own.step(weight.grad.flatten().tolist())
        optimizer.step()
    for weight, own in zip(weights, plain, strict=True):
        assert torch.allclose(
            weight.flatten(), torch.tensor(own.values, dtype=torch.float64), rtol=1e-12, atol=1e-14
        )


def test_a_gradient_of_zeros_moves_nothing():
    weight = nn.Parameter(numbers(3))
    before = weight.detach().clone()
    weight.grad = torch.zeros(3, dtype=torch.float64)
    LAMB([weight], lr=1.0).step()
    assert torch.equal(weight, before)


def test_a_parameter_counts_its_own_steps():
    late, early = (nn.Parameter(numbers(4, seed=7)) for _ in range(2))
    optimizer = LAMB([early, late], lr=0.1)
    early.grad = numbers(4, seed=1)
    optimizer.step()
    start = late.detach().clone()
    late.grad, early.grad = numbers(4, seed=2), None
    optimizer.step()
    alone = nn.Parameter(start)
    alone.grad = numbers(4, seed=2)
    LAMB([alone], lr=0.1).step()
    assert torch.equal(late, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_its_state_goes_on_exactly(dtype):
    whole = nn.Parameter(numbers(5, 3).to(dtype))
    optimizer = LAMB([whole], lr=0.05, weight_decay=0.01)
    for step in range(6):
        if step == 3:
            resumed = nn.Parameter(whole.detach().clone())
            other = LAMB([resumed], lr=0.05, weight_decay=0.01)
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        whole.grad = numbers(5, 3, seed=step).to(dtype)
        optimizer.step()
        if step >= 3:
            resumed.grad = whole.grad.clone()
            other.step()
    assert torch.equal(whole, resumed)


def test_a_closure_is_called():
    weight = nn.Parameter(torch.ones(2))

    def closure():
        weight.grad = None
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert LAMB([weight], lr=0.1).step(closure) == 2.0
    assert (weight < 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr=-1.0: must be at least 0"),
        ({"eps": float("nan")}, "eps=nan: must be at least 0"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1: must be at least 0"),
        ({"betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\): give two numbers"),
        ({"betas": (0.9,)}, r"betas=\(0.9,\): give two numbers"),
        ({"momentum": 0.9}, "takes no argument 'momentum'"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ModelError, match=message):
        build_optimizers(optim("lamb", **options), nn.Linear(2, 1), lambda ref: None)


def test_a_sparse_gradient_is_refused():
    embedding = nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        LAMB(embedding.parameters()).step()


def test_it_is_found_by_name_with_groups():
    model = nn.Linear(2, 1)
    setting = optim("lamb", lr=30.0, groups={"bias": {"weight_decay": 0.5}})
    optimizer = build_optimizers(setting, model, lambda ref: None)[""]
    assert isinstance(optimizer, LAMB)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.5]
    assert [group["lr"] for group in optimizer.param_groups] == [30.0, 30.0]
    assert optimizer_class(setting, lambda ref: CodeRef) is LAMB
