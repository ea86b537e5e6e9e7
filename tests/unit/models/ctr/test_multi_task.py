import pytest
import torch
from in_process import applied, ready, train

from flambeau.config import Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import ConfigError, ModelError
from flambeau.models import ESMM, MMoE, build
from flambeau.models.ctr.esmm import both
from flambeau.training.losses import build_loss

IDS = torch.tensor([[1, 2], [3, 2], [1, 4]])
DENSE = torch.tensor([[0.5], [1.0], [-2.0]])


def inputs_of(model: MMoE | ESMM, row: int) -> torch.Tensor:
    fields = model.inputs.embedding(IDS[row : row + 1])[0].flatten()
    return torch.cat([fields, DENSE[row]])


def test_the_formula_of_mmoe() -> None:
    model = MMoE(2, 1, 3, (5, 4), tasks=("click", "buy"), experts=3, tower=(2,))
    ready(model)
    found = model(IDS, DENSE)
    for place, task in enumerate(("click", "buy")):
        gate = model.gates[place]
        for row in range(3):
            inputs = inputs_of(model, row)
            shares = torch.softmax(gate.weight @ inputs + gate.bias, 0)
            mixed = torch.zeros(4)
            for share, expert in zip(shares, model.experts, strict=True):
                mixed = mixed + share * applied(expert, inputs)
            assert torch.allclose(found[task][row], applied(model.towers[place], mixed)[0])


def test_the_formula_of_esmm() -> None:
    model = ESMM(2, 1, 3, (5,), table={"initializer": {"scale": 2.0}})
    ready(model)
    found = model(IDS, DENSE)
    for row in range(3):
        inputs = inputs_of(model, row)
        click = torch.sigmoid(applied(model.click, inputs)[0])
        conversion = torch.sigmoid(applied(model.conversion, inputs)[0])
        assert torch.allclose(torch.sigmoid(found["click"][row]), click)
        assert torch.allclose(torch.sigmoid(found["conversion"][row]), click * conversion)


def test_the_product_of_probabilities_is_exact_where_they_are_close_to_0_or_1() -> None:
    first = torch.tensor([-200.0, 60.0, 60.0, 0.0, 80.0], requires_grad=True)
    second = torch.tensor([-100.0, 60.0, -60.0, 0.0, -1.0], requires_grad=True)
    expected = torch.tensor([-300.0, 60.0 - torch.tensor(2.0).log(), -60.0, -(3.0**0.5), -1.0])
    expected[3] = torch.logit(torch.tensor(0.25))
    logits = both(first, second)
    assert torch.allclose(logits, expected, atol=1e-4)
    logits.sum().backward()
    assert torch.isfinite(first.grad).all()
    assert torch.isfinite(second.grad).all()


@pytest.mark.parametrize("name", ["mmoe", "esmm"])
def test_training_lowers_the_loss_of_weighted_tasks(name: str) -> None:
    tasks = {"click": "bce", "conversion": "bce"}
    model = build(name, fields=2, dense=1, embedding_dim=4, hidden=(8,), tasks=tuple(tasks))
    loss = build_loss(tasks)
    label = {"click": torch.tensor([1.0, 0.0, 1.0]), "conversion": torch.tensor([1.0, 0.0, 0.0])}
    batch, weight = Batch({}, 3), torch.tensor([1.0, 0.5, 2.0])
    before, after = train(model, lambda: loss(model(IDS, DENSE), batch, label, weight))
    assert after < 0.8 * before


def test_weights_multiply_the_rows_of_all_tasks() -> None:
    model = MMoE(2, 1, tasks=("a", "b"))
    ready(model)
    columns = {"x": [1.0, 0.0, 1.0], "y": [0.0, 0.0, 1.0], "w": [0.0, 3.0, 0.5]}
    numbers = {name: torch.tensor(column) for name, column in columns.items()}
    rows = Batch({"ids": IDS, "dense": DENSE, **numbers}, 3)
    settings = Binding(label={"a": "x", "b": "y"}, weight="w")
    binder = Binder(settings, model.forward, Shape(tuple(rows)))
    output = model(IDS, DENSE)
    loss = build_loss({"a": "bce", "b": "bce"})
    found = loss(output, rows, binder.label(rows), binder.weight(rows))
    expected = 0.0
    for task, column in (("a", "x"), ("b", "y")):
        for row, weight in enumerate((0.0, 3.0, 0.5)):
            chance = torch.sigmoid(output[task][row])
            right = chance if rows[column][row] else 1 - chance
            expected = expected - weight * right.log() / 3
    assert torch.allclose(found, expected)


@pytest.mark.parametrize("name", ["mmoe", "esmm"])
def test_tasks_begin_at_their_base_rates(name: str) -> None:
    rates = {"click": 0.2, "conversion": 0.02}
    model = build(name, fields=2, hidden=(4,), tasks=tuple(rates), base_rates=[*rates.values()])
    ready(model)
    for name, weights in model.named_parameters():
        if name.endswith("weight"):  # so that only the last biases are left
            torch.nn.init.zeros_(weights)
    found = model(IDS)
    for task, rate in rates.items():
        assert torch.allclose(torch.sigmoid(found[task]), torch.tensor(rate))


def test_base_rates_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match=r"base_rates=\[0.2\]: give one for each of"):
        MMoE(2, tasks=("a", "b"), base_rates=[0.2])
    with pytest.raises(ModelError, match=r"base_rates has 1\.5 for 'b': give the share of ones"):
        MMoE(2, tasks=("a", "b"), base_rates=[0.2, 1.5])
    for rates in ([0.2, 0.3], [0.2, 0.2]):
        with pytest.raises(ModelError, match="the smaller one of those with a click and"):
            ESMM(2, base_rates=rates)


def test_tasks_that_are_no_names_are_refused() -> None:
    with pytest.raises(ModelError, match="give different names"):
        MMoE(2, tasks=("a", "a"))
    with pytest.raises(ModelError, match="give different names"):
        MMoE(2, tasks="click")
    with pytest.raises(ModelError, match="give two, the click and the conversion"):
        ESMM(2, tasks=("a", "b", "c"))
    with pytest.raises(ModelError, match="experts=0"):
        MMoE(2, tasks=("a",), experts=0)
    with pytest.raises(ConfigError, match="missing a required argument: 'tasks'"):
        build("mmoe", fields=2)
