import contextlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from flambeau.config import AllReduce, Binding
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.errors import DataError, JobFailedError, ModelError
from flambeau.strategies.all_reduce import AllReduceStrategy
from flambeau.strategies.base import Clipping
from flambeau.strategies.group import Solo
from flambeau.training.losses import build_loss
from flambeau.training.step import OwnStep, StandardStep, StepContext, not_finite


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def make_batch(rows: int = 7) -> Batch:
    x = torch.linspace(-1, 2, rows, dtype=torch.float64)
    names = np.array(["a"] * rows, dtype=object)
    columns = {"x": x, "y": 2 * x + 1, "w": torch.arange(float(rows)), "name": names}
    return Batch(columns, rows, epoch=3, index=5)


def make_binder(model: nn.Module, weight: str | None = None) -> Binder:
    settings = Binding(label="y", weight=weight)
    return Binder(settings, model.forward, Shape(("x", "y", "w", "name")), torch.float64)


def make_strategy(model: nn.Module) -> AllReduceStrategy:
    strategy = AllReduceStrategy(AllReduce(), Solo(), Clipping())
    strategy.attach(model, {"": SGD(model.parameters(), lr=0.1)}, own_step=False)
    return strategy


def step_once(
    batch: Batch, share: float = 1.0, accumulate: int = 1, weight: str | None = None
) -> tuple[float, float]:
    """The loss that was returned, and the change of the weight."""
    model = Model()
    binder, strategy = make_binder(model, weight), make_strategy(model)
    step = StandardStep(
        model, binder, build_loss("mse"), strategy, contextlib.nullcontext, accumulate
    )
    loss = step(batch, share, 9)
    return loss, model.weight.item() - 1.0


def test_a_step_is_that_of_plain_torch() -> None:
    batch, model = make_batch(), Model()
    loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
    loss.backward()
    assert step_once(batch) == pytest.approx((loss.item(), -0.1 * model.weight.grad.item()))


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("accumulate", [2, 3, 7, 20])
def test_a_batch_in_parts_gives_the_same(accumulate: int, weight: str | None) -> None:
    whole = step_once(make_batch(), weight=weight)
    parts = step_once(make_batch(), accumulate=accumulate, weight=weight)
    assert parts == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_share_scales_the_gradient_and_not_the_loss_shown(accumulate: int) -> None:
    loss, change = step_once(make_batch(), accumulate=accumulate)
    half = step_once(make_batch(), share=0.5, accumulate=accumulate)
    assert half == pytest.approx((loss, change / 2))


def test_a_column_that_is_not_finite_is_named_with_step_batch_and_row() -> None:
    batch = make_batch()
    batch["x"][4] = float("nan")
    place = "nan at step 9 of epoch 3: column 'x' is not finite in row 4"
    with pytest.raises(DataError, match=place):
        step_once(batch)


def test_with_accumulation_the_row_is_that_of_the_whole_batch() -> None:
    batch = make_batch()
    batch["x"][4] = float("inf")
    with pytest.raises(DataError, match="row 4"):
        step_once(batch, accumulate=7)


def test_a_loss_that_is_not_finite_on_finite_data_is_a_divergence() -> None:
    batch = make_batch()
    batch["x"].fill_(1e200)
    with pytest.raises(JobFailedError, match=r"inf at step 9 .*the training diverged"):
        step_once(batch)


def test_a_bad_loss_does_not_reach_the_weights() -> None:
    model, batch = Model(), make_batch()
    batch["x"][0] = float("nan")
    args = (model, make_binder(model), build_loss("mse"), make_strategy(model))
    with pytest.raises(DataError):
        StandardStep(*args, contextlib.nullcontext)(batch, 1.0, 0)
    assert model.weight.item() == 1.0


def test_forward_and_loss_run_under_autocast_but_backward_does_not() -> None:
    seen: list[bool] = []

    class Watching(Model):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.is_autocast_enabled("cpu"))
            return super().forward(x)

    model = Watching()
    model.weight.register_hook(lambda grad: seen.append(torch.is_autocast_enabled("cpu")))
    args = (model, make_binder(model), build_loss("mse"), make_strategy(model))
    StandardStep(*args, lambda: torch.autocast("cpu", dtype=torch.bfloat16))(make_batch(), 1.0, 0)
    assert seen == [True, False]


def own_step(function: Any, share: float = 1.0) -> tuple[float, Model, list[dict[str, float]]]:
    model, logged = Model(), []
    strategy = make_strategy(model)
    context = StepContext(
        model, strategy._optimizers, make_binder(model), strategy, logged.append, 0, 1
    )
    return OwnStep(function, context)(make_batch(), share, 4), model, logged


def plain(ctx: StepContext, batch: Batch) -> Tensor:
    label = ctx.label(batch)
    assert isinstance(label, Tensor)
    loss = nn.functional.mse_loss(ctx.forward(batch), label)
    ctx.backward(loss)
    ctx.update()
    return loss


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_an_own_step_written_like_the_built_in_one_does_the_same(share: float) -> None:
    loss, model, _ = own_step(plain, share)
    assert (loss, model.weight.item() - 1.0) == pytest.approx(step_once(make_batch(), share))


def test_an_own_step_knows_its_number_and_logs() -> None:
    def step(ctx: StepContext, batch: Batch) -> None:
        ctx.log(number=ctx.step, rows=torch.tensor(batch.size))

    loss, _, logged = own_step(step)
    assert math.isnan(loss)
    assert logged == [{"number": 4.0, "rows": 7.0}]


def test_gradients_can_be_forgotten() -> None:
    def step(ctx: StepContext, batch: Batch) -> None:
        ctx.backward(ctx.forward(batch).sum())
        ctx.zero_grad()
        ctx.update()

    assert own_step(step)[1].weight.item() == 1.0


def test_an_own_step_with_a_bad_loss_names_the_step() -> None:
    def step(ctx: StepContext, batch: Batch) -> None:
        ctx.backward(ctx.forward(batch).sum() * float("nan"))

    with pytest.raises(JobFailedError, match="nan at step 4"):
        own_step(step)


def test_an_own_step_that_returns_something_else_is_explained() -> None:
    with pytest.raises(ModelError, match="returned dict; return the loss"):
        own_step(lambda ctx, batch: {})


def test_a_member_of_stacked_columns_that_is_not_finite_is_named() -> None:
    batch = Batch({"inputs": torch.tensor([[1.0, 2.0], [1.0, float("nan")]])}, 2)
    error = not_finite(float("nan"), batch, 3, {"inputs": ("age", "price")})
    assert "column 'price' is not finite in row 1 of the batch; " in str(error)
    assert "fill={'price': 0.0}" in str(error)
