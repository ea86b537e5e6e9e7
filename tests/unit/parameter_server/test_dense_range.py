"""Ranges on servers do what one optimizer does to whole parameters."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from flambeau.checkpoint.tree import flatten, unflatten
from flambeau.errors import CheckpointError, ModelError, ProtocolError
from flambeau.parameter_server.dense_layout import DenseLayout, DenseParameter
from flambeau.parameter_server.dense_range import DenseRange

#: Class, options of all parameters, options of the second group.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.5}),
    "nesterov": (
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"weight_decay": 0.0},
    ),
    "dampened": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5}, {"dampening": 0.25}),
    "foreach": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "foreach": True}, {}),
    "maximize": (torch.optim.SGD, {"momentum": 0.9, "maximize": True}, {}),
    "unfused": (torch.optim.Adam, {"fused": False}, {"weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {"weight_decay": 0.01}, {"betas": (0.5, 0.9)}),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True}, {}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}, {"weight_decay": 0.0}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}, {"initial_accumulator_value": 0.3}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}, {"alpha": 0.5}),
    "adadelta": (torch.optim.Adadelta, {"weight_decay": 0.1}, {"rho": 0.5}),
    "adamax": (torch.optim.Adamax, {}, {"betas": (0.5, 0.9)}),
    "asgd": (torch.optim.ASGD, {"t0": 2, "lambd": 0.1}, {"alpha": 0.5}),
    "nadam": (torch.optim.NAdam, {"weight_decay": 0.01}, {"momentum_decay": 0.1}),
    "radam": (torch.optim.RAdam, {}, {"betas": (0.5, 0.9)}),
    "rprop": (torch.optim.Rprop, {}, {"etas": (0.6, 1.1)}),
}

#: Parameters that have no gradient, by step. At once, where the last gets its first one late; or
#: when the optimizer has had those of a group as one for some time.
ABSENT: dict[str, list[set[int]]] = {
    "absent": [{2}, {0, 2}, {1}, set(), {0, 1, 2}, set(), {1}],
    "absent later": [set(), set(), set(), {1}, set(), {0, 2}, set()],
}


class Odd(nn.Module):
    """21 + 7 + 1 weights in two groups."""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(1)
        self.a = nn.Parameter(torch.randn(7, 3, generator=numbers, dtype=torch.float64))
        self.b = nn.Parameter(torch.randn(1, 7, 1, generator=numbers, dtype=torch.float64))
        self.c = nn.Parameter(torch.randn((), generator=numbers, dtype=torch.float64))


class Case:
    """A model with its optimizer, and the same on servers."""

    def __init__(self, name: str, shards: int, absent: str = "absent") -> None:
        self.kind, self.options, other = OPTIMIZERS[name]
        self.model, self.absent = Odd(), ABSENT[absent]
        groups = [
            {"params": [self.model.a, self.model.b]},
            {"params": [self.model.c], **other},
        ]
        self.optimizer = self.kind(groups, lr=0.02, **self.options)
        self.layout = DenseLayout.of(self.model, self.optimizer)
        self.servers = servers(self.layout, shards, self.kind)
        for server in self.servers:
            server.initialise(self.expected()[server.start : server.stop])
        self.numbers = torch.Generator().manual_seed(2)

    def step(self, index: int) -> None:
        absent = self.absent[index % len(self.absent)]
        rates = [0.02 / (1 + index), 0.01 * (1 + index)]
        gradient = torch.randn(29, generator=self.numbers, dtype=torch.float64)
        parts = gradient.split([21, 7, 1])
        for number, parameter in enumerate(self.model.parameters()):
            given = parts[number].reshape(parameter.shape).clone()
            parameter.grad = None if number in absent else given
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.optimizer.step()
        for server in self.servers:
            server.apply(gradient.numpy()[server.start : server.stop], absent, rates)

    def restart(self, shards: int) -> None:
        dumps = [server.dump() for server in self.servers]
        for server in self.servers:
            server.values.fill(np.nan)
        self.servers = servers(self.layout, shards, self.kind)
        for server in self.servers:
            server.load([as_saved(dump) for dump in reversed(dumps)])

    def expected(self) -> np.ndarray:
        return torch.cat([value.detach().reshape(-1) for value in self.model.parameters()]).numpy()

    def check(self) -> None:
        got = np.concatenate([server.values for server in self.servers])
        np.testing.assert_allclose(got, self.expected(), rtol=1e-12, atol=1e-12)


def servers(
    layout: DenseLayout, shards: int, make: Callable[[list[dict]], Optimizer]
) -> list[DenseRange]:
    return [DenseRange(layout, start, stop, make) for start, stop in layout.ranges(shards)]


def as_saved(dump: dict) -> dict:
    """A dump that went through a checkpoint."""
    node, tensors = flatten(dump)
    return unflatten(node, {name: tensor.clone() for name, tensor in tensors.items()})


def one_range(kind: type, numel: int = 4, **options) -> DenseRange:
    parameters = (DenseParameter("w", numel, 0),)
    return DenseRange(DenseLayout(parameters, "float32", ({"lr": 0.5, **options},)), 0, numel, kind)


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ranges_do_what_the_optimizer_does_to_whole_parameters(name, shards, absent):
    case = Case(name, shards, absent)
    for index in range(7):
        case.step(index)
        case.check()


@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (5, 1), (1, 5)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restart_on_another_number_of_shards_changes_nothing(name, before, after, absent):
    case = Case(name, before, absent)
    for index in range(2):
        case.step(index)
    case.restart(after)
    case.check()
    for index in range(2, 6):
        case.step(index)
        case.check()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restart_before_the_first_step_changes_nothing(name):
    case = Case(name, 2)
    case.restart(3)
    for index in range(3):
        case.step(index)
    case.check()


def test_more_shards_than_weights_leave_some_with_nothing_to_do():
    case = Case("adam", 40)
    case.step(0)
    case.restart(50)
    case.step(1)
    case.check()


def test_a_group_is_one_parameter_until_one_of_its_own_lacks_a_gradient():
    case = Case("adam", 1, "absent later")
    (server,) = case.servers

    def parameters() -> list[int]:
        return [len(group["params"]) for group in server._optimizer.param_groups]

    case.step(0)
    assert parameters() == [1, 1]
    case.step(3)
    assert parameters() == [2, 1]


def test_values_are_the_memory_that_updates_change():
    server = one_range(torch.optim.SGD)
    values = server.values
    server.apply(np.float32([2, 4, 6, 8]), set(), [0.5])
    assert values.tolist() == [-1, -2, -3, -4]


def test_a_dump_does_not_change_with_later_updates():
    server = one_range(torch.optim.SGD, momentum=0.9)
    server.apply(np.ones(4, np.float32), set(), [0.5])
    dump = server.dump()
    server.apply(np.ones(4, np.float32), set(), [0.5])
    assert dump["values"].tolist() == [-0.5] * 4
    assert dump["state"]["momentum_buffer"].tolist() == [1.0] * 4


def test_a_range_does_not_change_the_dump_it_was_loaded_from():
    server = one_range(torch.optim.Adam)
    server.apply(np.ones(4, np.float32), set(), [0.5])
    dump = server.dump()
    server.load([dump])
    server.apply(np.ones(4, np.float32), set(), [0.5])
    assert dump["parameters"][0]["scalars"]["step"] == 1


def test_a_gradient_from_a_read_only_buffer_is_taken():
    server = one_range(torch.optim.SGD)
    server.apply(np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32), set(), [0.5])
    assert server.values.tolist() == [-0.5] * 4


def test_a_wrong_number_of_values_is_refused():
    server = one_range(torch.optim.SGD)
    with pytest.raises(ProtocolError, match=r"shape \[3\] for a range of 4"):
        server.apply(np.ones(3, np.float32), set(), [0.5])
    with pytest.raises(ProtocolError, match=r"shape \[1\] for a range of 4"):
        server.initialise(np.ones(1, np.float32))


def test_a_range_that_no_dump_has_is_an_incomplete_checkpoint():
    case = Case("adam", 3)
    dumps = [server.dump() for server in case.servers]
    with pytest.raises(CheckpointError, match="weights 9 to 19 are in none of the 2 saved"):
        case.servers[1].load([dumps[0], dumps[2]])


def apart() -> tuple[DenseLayout, list[dict]]:
    """The dumps of two shards, of which only the first has had a gradient."""
    layout = DenseLayout((DenseParameter("w", 4, 0),), "float32", ({"lr": 0.5},))
    first, second = servers(layout, 2, torch.optim.NAdam)
    first.apply(np.ones(2, np.float32), set(), [0.5])
    return layout, [first.dump(), second.dump()]


def test_shards_that_are_not_equally_far_each_go_on_from_where_they_were():
    layout, dumps = apart()
    for server, dump in zip(servers(layout, 2, torch.optim.NAdam), dumps, strict=True):
        server.load(dumps)
        assert server.dump()["parameters"] == dump["parameters"]


def test_state_that_one_of_two_shards_lacks_is_zero_when_they_become_one():
    layout, dumps = apart()
    (server,) = servers(layout, 1, torch.optim.NAdam)
    server.load(dumps)
    np.testing.assert_allclose(server.dump()["state"]["exp_avg"], [0.1, 0.1, 0, 0], rtol=1e-6)


def test_options_for_a_gpu_do_not_stop_a_server():
    server = one_range(torch.optim.NAdam, capturable=True)
    server.apply(np.ones(4, np.float32), set(), [0.5])
    assert server.values[0] != 0


class StepsInGroup(torch.optim.Optimizer):
    """SGD whose rate falls with a step that it counts in its groups."""

    def __init__(self, groups) -> None:
        super().__init__(groups, {"lr": 0.1, "step": 0})

    def step(self, closure=None) -> None:
        for group in self.param_groups:
            group["step"] += 1
            for parameter in group["params"]:
                parameter.data -= group["lr"] / group["step"] * parameter.grad


def test_what_an_optimizer_counts_in_its_groups_is_saved():
    server, other = one_range(StepsInGroup), one_range(StepsInGroup)
    server.apply(np.ones(4, np.float32), set(), [1.0])
    other.load([as_saved(server.dump())])
    other.apply(np.ones(4, np.float32), set(), [1.0])
    assert other.values[0] == -1.5


class KeepsRows(torch.optim.SGD):
    def step(self, closure=None) -> None:
        super().step()
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["rows"] = torch.zeros(3, 2)


def test_state_that_cannot_be_cut_is_refused():
    server = one_range(KeepsRows)
    server.apply(np.ones(4, np.float32), set(), [1.0])
    with pytest.raises(ModelError, match=r"state 'rows' is a Tensor of shape \[3, 2\]"):
        server.dump()
