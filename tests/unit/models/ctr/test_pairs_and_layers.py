import pytest
import torch
from torch import nn

from flambeau.models.ctr.pairs import inner_products, pair_indices
from flambeau.models.ctr.perceptron import Perceptron, linear


def plain_products(rows: torch.Tensor) -> torch.Tensor:
    first, second = pair_indices(rows.shape[1], rows.device)
    return (rows[:, first] * rows[:, second]).sum(2)


@pytest.mark.parametrize("fields", [2, 3, 7])
@pytest.mark.parametrize("rows", [1, 5])
def test_products_of_all_pairs_have_the_gradient_that_torch_finds(fields: int, rows: int) -> None:
    x = torch.randn(rows, fields, 4, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(rows, fields * (fields - 1) // 2, dtype=torch.float64)
    (found,) = torch.autograd.grad(inner_products(x), x, grads)
    (wanted,) = torch.autograd.grad(plain_products(x), x, grads)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(inner_products(x), inner_products(x.detach()))


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
    ours = linear(inputs, 6, bias=bias).double()
    plain = nn.Linear(inputs, 6, bias=bias).double()
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(5, inputs, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(5, 6, dtype=torch.float64)
    found, wanted = ours(x), plain(x)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(
        torch.autograd.grad(found, [x, *ours.parameters()], grads),
        torch.autograd.grad(wanted, [x, *plain.parameters()], grads),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(ours.eval()(x), wanted)


def test_a_perceptron_has_torchs_layers() -> None:
    layers = Perceptron(67, (8,), 1).layers
    assert all(isinstance(layers[place], nn.Linear) for place in (0, 2))
