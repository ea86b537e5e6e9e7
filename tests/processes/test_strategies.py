"""Replicas of a model on real processes: what they exchange, and that they stay the same."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import flambeau as fb
from flambeau.config import AllReduce
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping
from flambeau.strategies.group import ProcessGroup
from flambeau.strategies.sync_batch_norm import SyncBatchNorm, convert

ROWS = (4, 6)
MOMENTUM = 0.3


def whole_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (sum(ROWS), 3, 2, 2)
    x = torch.randn(shape, dtype=torch.float64, generator=generator) * 2 + 100
    return x, torch.randn(shape, dtype=torch.float64, generator=generator)


def make_norm() -> nn.Module:
    norm = nn.BatchNorm2d(3, momentum=MOMENTUM).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
    return norm


def normalise(norm: nn.Module, x: Tensor, factor: Tensor) -> dict[str, Tensor]:
    """Output, gradients and statistics after one step with a loss that is a sum over rows."""
    x = x.clone().requires_grad_()
    out = norm(x)
    (out * factor).sum().backward()
    assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
    gradients = {"x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    found = {"out": out.detach(), **gradients, "var": norm.running_var, "mean": norm.running_mean}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def synchronised(workers_with_rows: int) -> dict[str, Tensor]:
    group = ProcessGroup()
    norm = convert(make_norm())
    assert isinstance(norm, SyncBatchNorm)
    x, factor = whole_batch()
    if group.rank < workers_with_rows:
        start = sum(ROWS[: group.rank])
        rows = slice(start, start + ROWS[group.rank])
        return normalise(norm, x[rows], factor[rows])
    norm.muted = True
    return normalise(norm, torch.full_like(x[:2], 7.0), torch.zeros_like(x[:2]))


@pytest.mark.parametrize("workers", [2, 3], ids=["all with rows", "the last one muted"])
def test_synchronised_batch_norm_equals_batch_norm_on_the_whole_batch(workers: int) -> None:
    expected = normalise(make_norm(), *whole_batch())
    parts = fb.run(synchronised, len(ROWS), cluster=fb.Local(workers))
    with_rows = parts[: len(ROWS)]
    for name in ("out", "x"):
        together = torch.cat([part[name] for part in with_rows])
        torch.testing.assert_close(together, expected[name], rtol=0, atol=1e-10)
    for name in ("weight", "bias"):
        total = torch.stack([part[name] for part in parts]).sum(0)
        torch.testing.assert_close(total, expected[name], rtol=0, atol=1e-10)
    for name in ("mean", "var"):
        for part in parts:
            torch.testing.assert_close(part[name], expected[name], rtol=0, atol=1e-10)


def attach(
    settings: AllReduce, model: nn.Module, *, own_step: bool = False
) -> tuple[AllReduceStrategy, Any]:
    strategy = AllReduceStrategy(settings, ProcessGroup(), Clipping())
    optimizer = SGD(model.parameters(), lr=0.05)
    return strategy, strategy.attach(model, {"": optimizer}, own_step=own_step)


def own_rows() -> tuple[Tensor, Tensor]:
    """Rows of a linear problem, others on each worker."""
    generator = torch.Generator().manual_seed(ProcessGroup().rank)
    x = torch.randn(16, 8, generator=generator)
    return x, x @ torch.arange(16.0).reshape(8, 2)


def train(settings: AllReduce, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    strategy, forward = attach(settings, model)
    x, y = own_rows()
    losses, weights = [], []
    for _ in range(steps):
        loss = nn.functional.mse_loss(forward(x), y)
        strategy.backward(loss, last=True)
        strategy.update()
        losses.append(loss.item())
        weights.append(model.weight.detach().clone())
    return {"losses": losses, "weights": weights}


def equal(tensors: list[Tensor]) -> bool:
    return all(torch.equal(tensor, tensors[0]) for tensor in tensors)


@pytest.mark.parametrize("compression", ["fp16", "bf16", "powersgd"])
def test_compressed_gradients_train_and_replicas_stay_equal(compression: Any) -> None:
    workers = fb.run(train, AllReduce(compression=compression), 60, cluster=fb.Local(2))
    assert equal([worker["weights"][-1] for worker in workers])
    for worker in workers:
        assert worker["losses"][-1] < 0.1 * worker["losses"][0]


def test_local_sgd_averages_weights_every_k_steps() -> None:
    workers = fb.run(train, AllReduce(local_sgd=3), 6, cluster=fb.Local(2))
    same = [equal([worker["weights"][step] for worker in workers]) for step in range(6)]
    assert same == [False, False, True, False, False, True]


class Stateful(nn.Module):
    """Weights and buffers that differ on each worker."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.used = nn.Linear(2, 1)
        self.elsewhere = nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(2).double()
        self.register_buffer("count", torch.tensor(rank))
        nn.init.constant_(self.norm.running_mean, rank / 3)


def states() -> dict[str, Any]:
    """The state after attaching, and after one averaging of what became different since."""
    group = ProcessGroup()
    model = Stateful(group.rank)
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    strategy, _ = attach(AllReduce(), model, own_step=True)
    attached = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    nn.init.constant_(model.norm.running_mean, group.rank / 3)
    strategy.synchronize()
    return {"own": own, "attached": attached, "mean": model.norm.running_mean}


def test_after_attaching_all_replicas_are_those_of_the_first_worker() -> None:
    workers = fb.run(states, cluster=fb.Local(3))
    first = workers[0]["own"]
    for name, tensor in first.items():
        assert equal([tensor, *(worker["attached"][name] for worker in workers)]), name
    assert not torch.equal(first["used.weight"], workers[1]["own"]["used.weight"])
    for worker in workers:
        torch.testing.assert_close(worker["mean"], torch.full((2,), 1 / 3, dtype=torch.float64))


def own_steps() -> dict[str, Any]:
    """One update in which the second worker alone has a gradient for one of two layers."""
    group = ProcessGroup()
    model = Stateful(0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    strategy, _ = attach(AllReduce(), model, own_step=True)
    x = torch.ones(1, 2)
    strategy.backward(model.used(x).sum() * (group.rank + 1), last=True)
    if group.rank == 1:
        strategy.backward(model.elsewhere(x).sum(), last=True)
    strategy.update()
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}


def test_an_own_step_averages_gradients_also_where_only_one_worker_has_them() -> None:
    for change in fb.run(own_steps, cluster=fb.Local(2)):
        torch.testing.assert_close(change["used.bias"], torch.tensor([-0.05 * 1.5]))
        torch.testing.assert_close(change["elsewhere.bias"], torch.tensor([-0.05 * 0.5]))
        assert not change["norm.weight"].any()


def gathered() -> tuple[list[bytes], list[bytes], float]:
    group = ProcessGroup()
    lengths = group.gather(b"x" * group.rank)
    return lengths, group.gather(b""), group.sum(torch.tensor([1.0 + group.rank])).item()


def test_a_group_gathers_bytes_of_any_length_by_rank() -> None:
    for lengths, empty, total in fb.run(gathered, cluster=fb.Local(3)):
        assert (lengths, empty, total) == ([b"", b"x", b"xx"], [b""] * 3, 6.0)
