"""Values survive being taken apart into JSON and tensors."""

import enum
import json
import math
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.checkpoint.tree import flatten, unflatten
from flambeau.errors import CheckpointError


def there_and_back(tree: Any) -> Any:
    node, tensors = flatten(tree)
    return unflatten(json.loads(json.dumps(node, allow_nan=False)), tensors)


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, bit for bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=9)
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(trees)
def test_any_tree_comes_back_as_it_was(tree: Any) -> None:
    assert same(there_and_back(tree), tree)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float64(math.nan),
        np.int64(-3),
        np.bool_(True),
        np.datetime64("2020-01-02", "ns"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numpy_scalars_keep_their_type(value: np.generic) -> None:
    back = there_and_back(value)
    assert type(back) is type(value)
    assert back.tobytes() == value.tobytes()


def test_keys_0_and_text_0_are_different_tensors() -> None:
    back = there_and_back({0: torch.tensor(1), "0": torch.tensor(2)})
    assert (back[0].item(), back["0"].item()) == (1, 2)


def test_keys_with_dots_do_not_collide_with_nesting() -> None:
    back = there_and_back({"a": {"b": torch.tensor(1)}, "a.b": torch.tensor(2)})
    assert (back["a"]["b"].item(), back["a.b"].item()) == (1, 2)


def test_a_counter_stays_a_counter() -> None:
    back = there_and_back(Counter({30: 1, 60: 2}))
    assert type(back) is Counter
    assert back == Counter({30: 1, 60: 2})


def test_an_ordered_dict_becomes_a_dict_in_the_same_order() -> None:
    assert list(there_and_back(OrderedDict(b=1, a=2))) == ["b", "a"]


def test_a_parameter_becomes_a_tensor_without_gradient() -> None:
    back = there_and_back([torch.nn.Parameter(torch.ones(2))])[0]
    assert same(back, torch.ones(2))
    assert not back.requires_grad


class Color(enum.IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value", [print, {1, 2}, Color.RED, Point(1, 2), torch.float32, np.ones(2)], ids=repr
)
def test_anything_else_is_an_error_that_names_its_path(value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"state\.callbacks\.1\.fn cannot be saved"):
        flatten({"callbacks": [0, {"fn": value}]})


@pytest.mark.parametrize("key", [None, True, 1.5, (1, 2)])
def test_other_keys_are_an_error_that_names_them(key: Any) -> None:
    with pytest.raises(CheckpointError, match=r"state\.a cannot be saved.*its key"):
        flatten({"a": {key: 1}})


def test_a_kind_of_a_later_version_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="unknown kind of value 'quaternion'"):
        unflatten({"quaternion": 1}, {})


@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_optimizer_states_are_bit_exact(
    optimizer: type[torch.optim.Optimizer], arguments: dict[str, Any]
) -> None:
    model = torch.nn.Linear(3, 2)
    trained = optimizer(model.parameters(), lr=0.1, **arguments)  # type: ignore[call-arg]
    for _ in range(3):
        model(torch.randn(5, 3)).square().sum().backward()
        trained.step()
    assert same(there_and_back(trained.state_dict()), trained.state_dict())


def test_the_state_of_a_scheduler_with_milestones_loads() -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
    state = there_and_back(schedule.state_dict())
    schedule.load_state_dict(state)
    assert schedule.milestones == Counter({1: 1, 3: 1})
