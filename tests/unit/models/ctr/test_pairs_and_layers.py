from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

from flambeau.models.ctr.layers.linear import Linear
from flambeau.models.ctr.layers.pairs import inner_products, kernels_gain, pair_indices
from flambeau.models.ctr.layers.perceptron import Perceptron


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


def test_gradients_of_products_of_pairs_have_gradients() -> None:
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(inner_products, (x, z))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "rows",
    [
        torch.empty(1500, 26, 16, dtype=torch.float64),
        torch.empty(1500, 26, 16, device="meta"),
        torch.empty(100, 26, 16),
    ],
)
def test_other_products_of_pairs_stay_torchs(rows: torch.Tensor) -> None:
    assert not kernels_gain(rows)


def test_products_of_pairs_in_bf16_stay_torchs() -> None:
    rows = torch.empty(1500, 26, 16)
    assert kernels_gain(rows)
    with torch.autocast("cpu", torch.bfloat16):
        assert not kernels_gain(rows)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's
def test_compiled_products_of_pairs_are_torchs_in_one_graph() -> None:
    x = torch.randn(1500, 26, 16, requires_grad=True)
    compiled = torch.compile(inner_products, backend="eager", fullgraph=True)
    found, wanted = compiled(x), plain_products(x)
    grads = torch.randn_like(wanted)
    assert_same_in_float32((found, [x]), (wanted, [x]), grads)


@pytest.mark.parametrize("fields", [26, 31, 32, 33])
@pytest.mark.parametrize("dim", [8, 16, 17, 40])
def test_large_products_of_pairs_have_the_gradient_that_torch_finds(
    fields: int, dim: int, threads: int
) -> None:
    rows = (1 << 23) // (fields * fields * dim) + 1
    x = torch.randn(rows, fields, dim, requires_grad=True)
    assert kernels_gain(x) == (threads == 1)
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


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_with_relu_does_what_torchs_two_do(bias: bool) -> None:
    ours, plain = Linear(6, 64, bias=bias, relu=True), nn.Linear(6, 64, bias=bias)
    if bias:
        nn.init.normal_(ours.bias)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(5, 6, requires_grad=True)
    found, wanted = ours(x), functional.relu(plain(x))
    assert 0.2 < (wanted > 0).float().mean() < 0.8
    torch.testing.assert_close(found, wanted)
    assert_same_gradients(
        (found, [x, *ours.parameters()]),
        (wanted, [x, *plain.parameters()]),
        torch.randn_like(wanted),
    )
    torch.testing.assert_close(ours.eval()(x), wanted)


def test_first_weights_are_glorots_and_biases_are_zero() -> None:
    layer = Linear(200, 100)
    assert not layer.bias.any()
    bound = (6 / 300) ** 0.5
    assert 0.98 * bound < layer.weight.abs().max() <= bound


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


def test_a_perceptron_has_the_gradients_that_torch_finds() -> None:
    ours, plain = perceptrons()
    x = torch.randn(70, 367, requires_grad=True)
    assert_same_in_float32(
        (ours(x), [x, *ours.parameters()]),
        (plain(x), [x, *plain.parameters()]),
        torch.randn(70, 1),
    )


def test_gradients_of_a_perceptron_have_gradients() -> None:
    x = torch.randn(70, 367, requires_grad=True)
    seconds = []
    for model in perceptrons():
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        weights = [each for each in model.parameters() if each.dim() == 2]
        seconds.append(torch.autograd.grad(first.square().sum(), [x, *weights]))
    for one, other in zip(*seconds, strict=True):
        largest = other.abs().max()
        assert largest > 0
        torch.testing.assert_close(one / largest, other / largest, rtol=0, atol=1e-4)


def test_a_perceptron_compiles_to_one_graph_and_computes_in_bf16() -> None:
    ours, plain = perceptrons()
    x = torch.randn(70, 367)
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = ours(x), plain(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)


def test_hooks_of_layers_are_called() -> None:
    perceptron, seen = Perceptron(6, (64, 32), 1), []
    for layer in perceptron.layers:
        layer.register_forward_hook(lambda layer, given, out: seen.append(out.shape[1]))
    perceptron.layers[1].register_full_backward_hook(lambda layer, *grads: seen.append(layer))
    perceptron(torch.randn(5, 6)).sum().backward()
    assert seen == [64, 32, 1, perceptron.layers[1]]


def test_a_perceptron_has_one_module_for_each_layer() -> None:
    names = [name for name, _ in Perceptron(67, (8, 4), 1).named_parameters()]
    assert names == [f"layers.{at}.{kind}" for at in range(3) for kind in ("weight", "bias")]
    kinds = [type(layer) for layer in Perceptron(67, (8,), 1, 0.5, True).layers]
    assert kinds == [Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout, Linear]
