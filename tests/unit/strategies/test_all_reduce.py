import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from flambeau.config import AllReduce
from flambeau.errors import ModelError
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping, average_buffers
from flambeau.strategies.group import Group, Solo


class Twin(Group):
    """A second worker that always has the same as this one."""

    rank = 0
    size = 2

    def __init__(self) -> None:
        self.sums = 0

    def sum(self, tensor: Tensor) -> Tensor:
        self.sums += 1
        return tensor.mul_(2)

    def broadcast(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather(self, data: bytes) -> list[bytes]:
        return [data, data]


class Other(Twin):
    """A second worker whose values are 2."""

    def sum(self, tensor: Tensor) -> Tensor:
        self.sums += 1
        return tensor.add_(2.0)


def attach(
    group: Group, *, clipping: Clipping | None = None, own_step: bool = False, **settings: int
) -> tuple[AllReduceStrategy, nn.Linear]:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    strategy = AllReduceStrategy(AllReduce(**settings), group, clipping or Clipping())
    strategy.attach(model, {"": SGD(model.parameters(), lr=1.0)}, own_step=own_step)
    return strategy, model


def test_alone_the_model_is_used_as_it_is() -> None:
    model = nn.Linear(1, 1)
    strategy = AllReduceStrategy(AllReduce(), Solo(), Clipping())
    assert strategy.attach(model, {}, own_step=False) is model


def test_gradients_add_up_until_the_update_which_clears_them() -> None:
    strategy, model = attach(Solo())
    x = torch.ones(1, 1)
    strategy.backward(model(x).sum(), last=False)
    strategy.backward(model(2 * x).sum(), last=True)
    strategy.update()
    assert model.weight.item() == 1.0 - 3.0
    assert model.weight.grad is None


@pytest.mark.parametrize(
    ("clipping", "weight"), [(Clipping(norm=0.5), 0.5), (Clipping(value=0.25), 0.75)]
)
def test_gradients_are_clipped_before_the_step(clipping: Clipping, weight: float) -> None:
    strategy, model = attach(Solo(), clipping=clipping)
    strategy.backward(model(torch.full((1, 1), 8.0)).sum(), last=True)
    strategy.update()
    assert model.weight.item() == pytest.approx(weight, abs=1e-6)


def test_an_unknown_optimizer_is_named_with_those_there_are() -> None:
    strategy, _ = attach(Solo())
    with pytest.raises(ModelError, match=r"no optimizer 'gen'; there is \[''\]"):
        strategy.update("gen")


def test_an_own_step_averages_gradients_at_the_update() -> None:
    group = Twin()
    strategy, model = attach(group, own_step=True)
    strategy.backward(model(torch.full((1, 1), 3.0)).sum(), last=True)
    strategy.update()
    assert model.weight.item() == 1.0 - 3.0
    assert group.sums == 1


def test_an_own_step_leaves_a_parameter_without_gradient_anywhere_alone() -> None:
    model = nn.ModuleDict({"used": nn.Linear(1, 1), "unused": nn.Linear(1, 1)})
    strategy = AllReduceStrategy(AllReduce(), Twin(), Clipping())
    optimizer = SGD(model.parameters(), lr=1.0, weight_decay=0.5)
    before = model["unused"].weight.item()
    strategy.attach(model, {"": optimizer}, own_step=True)
    strategy.backward(model["used"](torch.ones(1, 1)).sum(), last=True)
    strategy.update()
    assert model["unused"].weight.item() == before


def test_local_sgd_averages_weights_every_k_updates_and_when_asked() -> None:
    group = Twin()
    strategy, model = attach(group, local_sgd=3)
    sums = []
    for _ in range(7):
        strategy.backward(model(torch.ones(1, 1)).sum(), last=True)
        strategy.update()
        sums.append(group.sums)
    assert sums == [0, 0, 1, 1, 1, 2, 2]
    strategy.synchronize()
    assert group.sums == 3


def test_buffers_are_averaged_in_one_exchange_and_integers_left_alone() -> None:
    model, group = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(3)), Other()
    average_buffers(model, group)
    assert group.sums == 1
    first = model[0]
    assert first.running_mean.tolist() == [1.0, 1.0]
    assert first.running_var.tolist() == [1.5, 1.5]
    assert first.num_batches_tracked.item() == 0


def test_a_model_without_buffers_exchanges_none() -> None:
    group = Twin()
    average_buffers(nn.Linear(1, 1), group)
    assert group.sums == 0


def test_double_precision_buffers_keep_their_precision() -> None:
    model = nn.BatchNorm1d(1).double()
    model.running_mean.fill_(1 / 3)
    average_buffers(model, Twin())
    assert model.running_mean.item() == 1 / 3
