from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flambeau.models.ctr.layers.large_work import is_large
from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.one_dnn import by_one_dnn, gains, keeps_precision
from flambeau.models.ctr.layers.pairs import inner_products, pair_indices
from flambeau.models.ctr.layers.perceptron import Perceptron
from flambeau.models.ctr.layers.relu_kernels import cut_and_sum


def plain_products(rows: torch.Tensor) -> torch.Tensor:
    first, second = pair_indices(rows.shape[1], rows.device)
    return (rows[:, first] * rows[:, second]).sum(2)


def assert_same_gradients(
    found: tuple[torch.Tensor, list[torch.Tensor]],
    wanted: tuple[torch.Tensor, list[torch.Tensor]],
    grads: torch.Tensor,
    **tolerance: float,
) -> None:
    """Two results, each with what it was made of, have equal gradients of that."""
    ours, theirs = (torch.autograd.grad(out, given, grads) for out, given in (found, wanted))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def assert_same_in_float32(
    found: tuple[torch.Tensor, list[torch.Tensor]],
    wanted: tuple[torch.Tensor, list[torch.Tensor]],
    grads: torch.Tensor,
) -> None:
    """The results are equal, too, as far as float32 goes."""
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-4)
    assert_same_gradients(found, wanted, grads, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("fields", [2, 3, 7])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_all_pairs_have_the_gradient_that_torch_finds(fields: int, rows: int) -> None:
    x = torch.randn(rows, fields, 4, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(rows, fields * (fields - 1) // 2, dtype=torch.float64)
    (found,) = torch.autograd.grad(inner_products(x), x, grads)
    (wanted,) = torch.autograd.grad(plain_products(x), x, grads)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(inner_products(x), inner_products(x.detach()))


def with_first(rows: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return torch.cat([first, plain_products(torch.cat([first[:, None], rows], dim=1))], dim=1)


def test_a_vector_before_the_others_is_in_the_result_and_in_pairs() -> None:
    x = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(4, 8, dtype=torch.float64)
    found, wanted = inner_products(x, z), with_first(x, z)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(inner_products(x.detach(), z), wanted)
    assert_same_gradients((found, [x, z]), (wanted, [x, z]), grads)


def test_products_of_all_pairs_in_bf16_give_gradients_of_the_rows_own_precision() -> None:
    x = torch.randn(4, 3, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        products = inner_products(x)
    assert products.dtype == torch.bfloat16
    products.float().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(
        x.grad, x.detach().sum(1, keepdim=True) - x.detach(), rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize("inputs", [3, 64, 65, 72, 367])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_any_width_do_what_torchs_do(inputs: int, bias: bool) -> None:
    ours = Linear(inputs, 6, bias=bias).double()
    plain = nn.Linear(inputs, 6, bias=bias).double()
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(5, inputs, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(5, 6, dtype=torch.float64)
    found, wanted = ours(x), plain(x)
    torch.testing.assert_close(found, wanted)
    assert_same_gradients(
        (found, [x, *ours.parameters()]), (wanted, [x, *plain.parameters()]), grads
    )
    torch.testing.assert_close(ours.eval()(x), wanted)


@pytest.mark.parametrize("inputs", [367, 368])
@pytest.mark.parametrize("bias", [True, False])
def test_large_layers_do_in_float32_what_torchs_do(inputs: int, bias: bool) -> None:
    ours, plain = Linear(inputs, 64, bias=bias), nn.Linear(inputs, 64, bias=bias)
    plain.load_state_dict(ours.state_dict())
    assert gains(torch.empty(700, inputs), 700 * inputs * 64) == keeps_precision()
    x = torch.randn(700, inputs, requires_grad=True)
    grads = torch.randn(700, 64)
    # In place, as in a perceptron: that must not change what the gradient is made of.
    found, wanted = (functional.relu_(layer(x)) for layer in (ours, plain))
    assert_same_in_float32(
        (found, [x, *ours.parameters()]), (wanted, [x, *plain.parameters()]), grads
    )
    torch.testing.assert_close(ours(x.detach()), plain(x.detach()), rtol=1e-4, atol=1e-4)


def test_gradients_of_large_layers_have_gradients() -> None:
    ours, plain = Linear(368, 64), nn.Linear(368, 64)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(700, 368, requires_grad=True)
    found, wanted = (second_gradients(layer, x, layer) for layer in (ours, plain))
    for one, other in zip(found, wanted, strict=True):
        assert other.abs().mean() > 1  # far above what is tolerated
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def second_gradients(
    layer: nn.Linear, x: torch.Tensor, forward: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    (first,) = torch.autograd.grad(forward(x).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), [x, layer.weight, layer.bias])


def test_gradients_of_products_of_pairs_have_gradients() -> None:
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(inner_products, (x, z))


def test_one_dnn_makes_products_only_where_it_is_asked_to() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    with by_one_dnn():
        assert matmul.fp32_precision == "bf16"
    assert matmul.fp32_precision == before


def test_a_cpu_that_would_lose_digits_makes_no_products_by_one_dnn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product = torch.bmm
    rounded = lambda *each: product(*(e.bfloat16() for e in each)).float()  # noqa: E731
    monkeypatch.setattr(torch, "bmm", rounded)
    assert not keeps_precision.__wrapped__()


@pytest.mark.parametrize(
    ("x", "multiplications"),
    [
        (torch.empty(4, dtype=torch.float64), 1 << 30),
        (torch.empty(4, device="meta"), 1 << 30),
        (torch.empty(4), 1 << 20),
    ],
)
def test_other_products_stay_torchs(x: torch.Tensor, multiplications: int) -> None:
    assert not gains(x, multiplications)


def test_products_in_bf16_stay_torchs() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert not gains(torch.empty(4), 1 << 30)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("fields", [26, 31, 32, 33])
@pytest.mark.parametrize("dim", [8, 16, 17, 40])
def test_large_products_of_pairs_have_the_gradient_that_torch_finds(
    fields: int, dim: int, threads: int
) -> None:
    rows = (1 << 23) // (fields * fields * dim) + 1
    x = torch.randn(rows, fields, dim, requires_grad=True)
    assert is_large(x, x.numel() * fields)
    z = torch.randn(rows, dim, requires_grad=True)
    for found, wanted, given in (
        (inner_products(x), plain_products(x), [x]),
        (inner_products(x, z), with_first(x, z), [x, z]),
    ):
        # Not contiguous, as the gradient of a part of something is.
        grads = torch.randn(rows, found.shape[1] + 1)[:, 1:]
        assert_same_in_float32((found, given), (wanted, given), grads)


def test_what_is_not_a_number_stays_in_its_row_and_pairs(threads: int) -> None:
    x = torch.randn(1500, 26, 17)
    x[3, 5, 2] = x[1400, 25, 16] = torch.nan
    x.requires_grad_()
    found, wanted = inner_products(x), plain_products(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
    found.sum().backward()
    assert x.grad is not None
    assert set(x.grad.isnan().any((1, 2)).nonzero().flatten().tolist()) == {3, 1400}


def test_gradients_of_large_products_of_pairs_have_gradients(threads: int) -> None:
    x = torch.randn(1500, 26, 16, requires_grad=True)
    z = torch.randn(1500, 16, requires_grad=True)
    seconds = []
    for function in (inner_products, with_first):
        first = torch.autograd.grad(function(x, z).square().sum(), [x, z], create_graph=True)
        total = torch.stack([each.square().sum() for each in first]).sum()
        seconds.append(torch.autograd.grad(total, [x, z]))
    for one, other in zip(*seconds, strict=True):
        largest = other.abs().max()
        assert largest > 1
        torch.testing.assert_close(one / largest, other / largest, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("rows", "inputs"), [(5, 6), (700, 367)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_with_relu_does_what_torchs_two_do(
    rows: int, inputs: int, bias: bool, threads: int
) -> None:
    ours, plain = Linear(inputs, 64, bias=bias, relu=True), nn.Linear(inputs, 64, bias=bias)
    if bias:
        nn.init.normal_(ours.bias)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(rows, inputs, requires_grad=True)
    # Not contiguous, as the gradient of a part of something is.
    grads = torch.randn(rows, 65)[:, 1:]
    found, wanted = ours(x), functional.relu(plain(x))
    assert 0.2 < (wanted > 0).float().mean() < 0.8
    assert_same_in_float32(
        (found, [x, *ours.parameters()]), (wanted, [x, *plain.parameters()]), grads
    )
    torch.testing.assert_close(ours.eval()(x), wanted, rtol=1e-4, atol=1e-4)


def test_relu_hides_nothing_that_is_not_a_number(threads: int) -> None:
    ours = Linear(368, 64, relu=True)
    x = torch.randn(700, 368)
    x[3, 5] = torch.nan
    found = ours(x)
    assert found[3].isnan().all()
    assert not found[4:].isnan().any()
    found[3].sum().backward()
    assert ours.bias.grad is not None
    torch.testing.assert_close(ours.bias.grad, torch.ones(64))


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 1000])
def test_sums_of_gradients_are_over_all_rows(rows: int) -> None:
    grads, values = np.random.default_rng(0).standard_normal((2, rows, 3)).astype(np.float32)
    wanted, sums = np.where(values > 0, grads, 0), np.empty(3, np.float32)
    cut_and_sum(grads, values, sums)
    np.testing.assert_array_equal(grads, wanted)
    np.testing.assert_allclose(sums, wanted.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_gradients_of_layers_with_relu_have_gradients(threads: int) -> None:
    ours, plain = Linear(368, 64, relu=True), nn.Linear(368, 64)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(700, 368, requires_grad=True)
    found = second_gradients(ours, x, ours)
    wanted = second_gradients(plain, x, lambda x: functional.relu(plain(x)))
    for one, other in zip(found, wanted, strict=True):
        assert other.abs().mean() > 1  # far above what is tolerated
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_what_changes_the_result_of_a_layer_with_relu_is_refused_by_torch() -> None:
    found = Linear(368, 64, relu=True)(torch.randn(700, 368))
    found.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        found.sum().backward()


def perceptrons() -> tuple[Perceptron, nn.Sequential]:
    """Ours, and the same of torch's layers."""
    ours = Perceptron(367, (64, 32), 1)
    plain = nn.Sequential(
        nn.Linear(367, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        nn.init.normal_(mine, std=0.1)
        theirs.data = mine.detach().clone()
    return ours, plain


@pytest.mark.parametrize("x_learns", [True, False])
def test_a_perceptron_has_the_gradients_that_torch_finds(x_learns: bool, threads: int) -> None:
    ours, plain = perceptrons()
    x = torch.randn(700, 367, requires_grad=x_learns)
    grads = torch.randn(700, 1)
    given = grads.clone()
    found, wanted = ours(x), plain(x)
    of = [[*([x] if x_learns else []), *model.parameters()] for model in (ours, plain)]
    assert_same_in_float32((found, of[0]), (wanted, of[1]), grads)
    assert torch.equal(grads, given)


def test_a_gradient_that_a_perceptron_is_given_stays_as_it_is(threads: int) -> None:
    perceptron = Perceptron(367, (64, 32))
    x, grads = torch.randn(700, 367), torch.randn(700, 32)
    given = grads.clone()
    perceptron(x).backward(grads)
    assert torch.equal(grads, given)


def test_frozen_layers_of_a_perceptron_have_no_gradient() -> None:
    ours, plain = perceptrons()
    for model in (ours, plain):
        list(model.parameters())[2].requires_grad_(False)
        model(torch.ones(700, 367)).sum().backward()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-3)


def test_gradients_of_a_perceptron_have_gradients(threads: int) -> None:
    x = torch.randn(700, 367, requires_grad=True)
    found, wanted = [], []
    for model, seconds in zip(perceptrons(), (found, wanted), strict=True):
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        weights = [each for each in model.parameters() if each.dim() == 2]
        seconds += torch.autograd.grad(first.square().sum(), [x, *weights])
    for one, other in zip(found, wanted, strict=True):
        largest = other.abs().max()
        assert largest > 0
        torch.testing.assert_close(one / largest, other / largest, rtol=0, atol=1e-4)


def test_hooks_of_layers_are_called() -> None:
    perceptron, seen = Perceptron(368, (64, 32), 1), []
    hooks = [
        layer.register_forward_hook(lambda layer, given, out: seen.append(out.shape[1]))
        for layer in perceptron.layers
    ]
    x = torch.randn(700, 368)
    with_hooks = perceptron(x)
    assert seen == [64, 32, 1]
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(perceptron(x), with_hooks)
    perceptron.layers[1].register_full_backward_hook(lambda layer, *grads: seen.append(layer))
    perceptron(x).sum().backward()
    assert seen[3:] == [perceptron.layers[1]]


def test_a_perceptron_has_torchs_layers() -> None:
    assert all(isinstance(layer, nn.Linear) for layer in Perceptron(67, (8,), 1).layers)
    kinds = [type(layer) for layer in Perceptron(67, (8,), 1, 0.5, True).layers]
    assert kinds == [Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout, Linear]
