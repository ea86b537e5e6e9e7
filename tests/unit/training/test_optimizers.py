"""Optimizers: which parameters they get, with which arguments."""

import pytest
import torch
from torch import nn

from flambeau.config.code import CodeRef
from flambeau.config.optimizer import DENSE_OPTIMIZERS, OptimizerSpec, optim
from flambeau.config.tables import TableSpec
from flambeau.embeddings.sparse_embedding import SparseEmbedding
from flambeau.errors import ModelError
from flambeau.training.optimizers import build_optimizers, optimizer_class, scale_learning_rates


def load(ref: CodeRef) -> object:
    return {
        "torch.optim:SGD": torch.optim.SGD,
        "mine:build": lambda parameters: torch.optim.SGD(parameters, lr=0.3),
        "mine:wrong": lambda parameters: 7,
        "mine:number": 7,
    }[ref.name]


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def only(setting, model: nn.Module) -> torch.optim.Optimizer:
    return build_optimizers(setting, model, load)[""]


@pytest.mark.parametrize("name", DENSE_OPTIMIZERS)
def test_every_known_name_builds_its_torch_class(name):
    assert type(only(OptimizerSpec(name=name), small())).__name__ == DENSE_OPTIMIZERS[name]


def test_an_import_path_names_a_class():
    optimizer = only(OptimizerSpec(name="torch.optim:SGD", args={"lr": 0.5}), small())
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_code_gets_the_trainable_parameters():
    model = small()
    model[0].requires_grad_(False)
    optimizer = only(CodeRef(path="mine:build"), model)
    assert optimizer.param_groups[0]["params"] == list(model[2].parameters())


def test_code_that_gives_no_optimizer_is_refused():
    with pytest.raises(ModelError, match="mine:wrong' gave a int"):
        only(CodeRef(path="mine:wrong"), small())


def test_groups_take_parameters_by_name_and_the_first_match_wins():
    model = small()
    groups = {"2.*": {"lr": 0.2}, "*.bias": {"weight_decay": 0.0}}
    optimizer = only(optim("sgd", lr=0.1, weight_decay=0.5, groups=groups), model)
    settings = {
        parameter: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert [settings[parameter] for parameter in model.parameters()] == [
        (0.1, 0.5),
        (0.1, 0.0),
        (0.2, 0.5),
        (0.2, 0.5),
    ]


def test_groups_may_take_all_parameters():
    optimizer = only(optim("sgd", groups={"*": {"lr": 0.2}}), small())
    assert [group["lr"] for group in optimizer.param_groups] == [0.2]


def test_a_group_without_parameters_is_an_error():
    with pytest.raises(ModelError, match=r"group 'head\.\*' .* such as '0\.weight'"):
        only(optim("adam", groups={"head.*": {"lr": 0.1}}), small())


@pytest.mark.parametrize("place", ["args", "groups"])
def test_an_argument_the_optimizer_does_not_take_is_named(place):
    wrong = {"weigth_decay": 0.1}
    spec = optim("adam", **wrong) if place == "args" else optim("adam", groups={"*": wrong})
    with pytest.raises(ModelError, match="'weigth_decay'; did you mean 'weight_decay'"):
        only(spec, small())


def test_a_value_torch_refuses_names_the_optimizer():
    with pytest.raises(ModelError, match="optimizer 'adam': Invalid learning rate"):
        only(optim("adam", lr=-1.0), small())


def test_a_model_without_trainable_parameters_is_an_error():
    with pytest.raises(ModelError, match="nothing to train"):
        only(OptimizerSpec(), small().requires_grad_(False))


def test_a_dict_gives_each_submodule_its_optimizer():
    model = nn.ModuleDict({"gen": nn.Linear(2, 2), "disc": nn.Linear(2, 1)})
    built = build_optimizers({"gen": optim("sgd"), "disc": optim("adam")}, model, load)
    assert built["gen"].param_groups[0]["params"] == list(model["gen"].parameters())
    assert isinstance(built["disc"], torch.optim.Adam)


def test_a_dict_that_names_no_submodule_is_an_error():
    model = nn.ModuleDict({"gen": nn.Linear(2, 2), "disc": nn.Linear(2, 1)})
    with pytest.raises(ModelError, match="no submodule 'dics'; did you mean 'disc'"):
        build_optimizers({"gen": optim("sgd"), "dics": optim("sgd")}, model, load)


def test_a_dict_that_leaves_parameters_out_is_an_error():
    model = nn.ModuleDict({"gen": nn.Linear(2, 2), "disc": nn.Linear(2, 1)})
    with pytest.raises(ModelError, match=r"'disc\.weight' \(2 in all\)"):
        build_optimizers({"gen": optim("sgd")}, model, load)


FUSED = [
    optim("sgd", lr=0.1),
    optim("sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    optim("adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.01),
    optim("adam", lr=0.1, weight_decay=0.01),
    optim("adam", lr=0.1, amsgrad=True),
    optim("adamw", lr=0.1),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", FUSED, ids=str)
def test_fused_updates_equal_plain_ones(spec, dtype):
    plain_spec = OptimizerSpec(name=spec.name, args={**spec.args, "foreach": False})
    torch.manual_seed(0)
    model, plain = small().to(dtype), small().to(dtype)
    plain.load_state_dict(model.state_dict())
    optimizers = only(spec, model), only(plain_spec, plain)
    assert optimizers[0].param_groups[0]["fused"] is True
    assert not optimizers[1].param_groups[0]["fused"]
    for step in range(5):
        gradients = [torch.randn_like(parameter) for parameter in model.parameters()]
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            for index, parameter in enumerate(each.parameters()):
                parameter.grad = None if index == step % 3 else gradients[index].clone()
            optimizer.step()
    for fused, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(fused, expected)


@pytest.mark.parametrize("spec", FUSED, ids=str)
def test_fused_step_without_any_gradient_changes_nothing(spec):
    model = small()
    before = [parameter.clone() for parameter in model.parameters()]
    only(spec, model).step()
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("args", [{"foreach": True}, {"maximize": True}, {"fused": False}])
def test_fused_is_not_forced_on_a_choice_of_the_user(args):
    assert not only(optim("sgd", lr=0.1, **args), small()).param_groups[0]["fused"]


def test_sparse_gradients_are_not_fused():
    model = nn.Embedding(10, 2, sparse=True)
    optimizer = only(optim("sgd", lr=0.1), model)
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    assert not optimizer.param_groups[0]["fused"]


def test_half_precision_parameters_are_not_fused():
    optimizer = only(optim("sgd", lr=0.1), small().to(torch.bfloat16))
    assert not optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize(("mode", "expected"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_learning_rates_scale_with_the_workers(mode, expected):
    optimizers = build_optimizers(optim("sgd", lr=0.1), small(), load)
    scale_learning_rates(optimizers, 4, mode)
    assert optimizers[""].param_groups[0]["lr"] == pytest.approx(expected)


@pytest.mark.parametrize("spec", [optim("sgd", lr=0.5, momentum=0.9), optim("adam", lr=0.5)])
def test_a_model_with_tables_only_has_an_optimizer_without_weights(spec):
    optimizer = only(spec, SparseEmbedding(TableSpec("user", 2)))
    (group,) = optimizer.param_groups
    assert sum(parameter.numel() for parameter in group["params"]) == 0
    # Schedules change this learning rate, and those of tables follow.
    assert group["lr"] == 0.5
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())


def test_tables_beside_weights_add_no_parameter():
    model = nn.ModuleDict({"user": SparseEmbedding(TableSpec("user", 2)), "top": nn.Linear(2, 1)})
    assert only(optim("sgd"), model).param_groups[0]["params"] == list(model["top"].parameters())


@pytest.mark.parametrize("name", DENSE_OPTIMIZERS)
def test_the_class_of_a_known_name_is_torchs(name):
    assert optimizer_class(OptimizerSpec(name=name), load) is getattr(
        torch.optim, DENSE_OPTIMIZERS[name]
    )


def test_the_class_of_an_import_path_is_the_class_there():
    assert optimizer_class(optim("torch.optim:SGD", lr=0.5), load) is torch.optim.SGD


def test_the_class_of_the_users_function_is_what_it_makes():
    assert optimizer_class(CodeRef(path="mine:build"), load) is torch.optim.SGD


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (optim("ftrl"), "'ftrl' is for tables only"),
        (optim("mine:number"), "'mine:number' is not a class, but 7"),
        (CodeRef(path="mine:wrong"), r"'mine:wrong' gave a int, not a torch\.optim\.Optimizer"),
    ],
)
def test_what_builds_no_dense_optimizer_is_refused(setting, message):
    with pytest.raises(ModelError, match=message):
        optimizer_class(setting, load)
