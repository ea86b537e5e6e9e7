"""The flat vector of a model's weights, and how it is cut."""

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from flambeau.errors import ModelError
from flambeau.parameter_server.dense_layout import DenseLayout, DenseParameter, ParameterSlice


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))


def grouped(model: nn.Sequential, **options) -> torch.optim.Optimizer:
    groups = [{"params": model[1].parameters(), "lr": 0.5}, {"params": model[0].parameters()}]
    return torch.optim.Adam(groups, **options)


def layout(**options) -> DenseLayout:
    model = two_layers()
    return DenseLayout.of(model, grouped(model, **options))


def test_parameters_are_in_the_models_order_with_the_group_they_belong_to():
    assert layout().parameters == (
        DenseParameter("0.weight", 6, 1),
        DenseParameter("0.bias", 2, 1),
        DenseParameter("1.weight", 2, 0),
        DenseParameter("1.bias", 1, 0),
    )


def test_groups_are_their_options_without_parameters():
    first, second = layout(betas=[0.5, 0.75]).groups
    assert first["lr"] == 0.5
    assert second["betas"] == (0.5, 0.75)
    assert "params" not in first


def test_names_that_torch_keeps_in_groups_are_left_out():
    model = two_layers()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    assert "param_names" not in DenseLayout.of(model, optimizer).groups[0]


def test_frozen_parameters_and_those_without_an_optimizer_are_left_out():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD([*model[0].parameters(), model[1].bias], lr=0.1)
    names = [parameter.name for parameter in DenseLayout.of(model, optimizer).parameters]
    assert names == ["0.bias", "1.bias"]


def test_a_parameter_of_another_model_is_refused():
    optimizer = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ModelError, match=r"2 parameters that the model does not have.*\[2"):
        DenseLayout.of(nn.Linear(3, 2), optimizer)


def test_two_dtypes_are_refused_by_the_names_of_two_parameters():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ModelError, match=r"'1.weight' is torch.float64 and '0.weight' is torch.fl"):
        DenseLayout.of(model, optimizer)


def test_a_dtype_that_numpy_has_not_is_refused():
    model = nn.Linear(1, 1).bfloat16()
    with pytest.raises(ModelError, match=r"'weight' is torch.bfloat16"):
        DenseLayout.of(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_an_option_that_is_no_plain_value_is_refused():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    with pytest.raises(ModelError, match="option 'lr' is a Tensor"):
        DenseLayout.of(model, optimizer)


def test_numpy_numbers_become_plain_ones():
    (group, _) = layout(weight_decay=np.float32(0.5)).groups
    assert type(group["weight_decay"]) is float


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
def test_it_travels(codec):
    assert codec.decode(codec.encode(layout()), type=DenseLayout) == layout()


def test_it_travels_as_plain_values():
    assert msgspec.convert(msgspec.to_builtins(layout()), DenseLayout) == layout()


@pytest.mark.parametrize("parameter", [DenseParameter("w", -1, 0), DenseParameter("w", 1, 2)])
def test_a_parameter_that_cannot_be_is_malformed(parameter):
    values = {"parameters": [msgspec.to_builtins(parameter)], "dtype": "float32", "groups": [{}]}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(values, DenseLayout)


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 11, 20])
def test_ranges_follow_each_other_and_are_equal_up_to_one(shards):
    ranges = layout().ranges(shards)
    lengths = [stop - start for start, stop in ranges]
    assert len(ranges) == shards
    assert sum(lengths) == 11
    assert max(lengths) - min(lengths) <= 1
    assert [start for start, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]


def test_pieces_are_counted_from_the_start_of_the_range():
    assert layout().pieces(4, 9) == [
        ParameterSlice(0, 0, 2),
        ParameterSlice(1, 2, 4),
        ParameterSlice(2, 4, 5),
    ]


def test_an_empty_range_has_no_pieces():
    assert layout().pieces(4, 4) == []


def test_the_same_model_is_the_same():
    layout().check_same(layout())


def test_learning_rates_and_kernels_may_differ():
    layout(lr=0.1).check_same(layout(lr=0.2, fused=True))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (layout(weight_decay=0.5), r"option 'weight_decay' of group 0 is 0 here, 0.5 there"),
        (
            msgspec.structs.replace(layout(), parameters=layout().parameters[:3]),
            "4 parameters here, 3 there",
        ),
        (
            msgspec.structs.replace(layout(), parameters=layout().parameters[::-1]),
            r"'0.weight' \(6 values, group 1\) here is '1.bias'",
        ),
        (msgspec.structs.replace(layout(), dtype="float64"), "float32 here, float64 there"),
        (msgspec.structs.replace(layout(), groups=layout().groups * 2), "2 groups here, 4 there"),
    ],
)
def test_a_difference_is_named(other, message):
    with pytest.raises(ModelError, match=message):
        layout().check_same(other)
