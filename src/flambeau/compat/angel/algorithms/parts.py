"""Parts of the algorithms, as functions that TorchScript compiles.

Shapes: a batch has `batch_size` rows and n ids; `weights` is [n, 1], `embeddings` [n, dim].
"""

import math

import torch
from torch import Tensor

from flambeau.errors import ConfigError


def linear(batch_size: int, index: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of weight x value of each row [batch_size]."""
    products = weights.view(-1) * values
    return torch.zeros(batch_size).scatter_add(0, index, products)


def scaled(values: Tensor, embeddings: Tensor) -> Tensor:
    """Return embeddings times the values of their ids [n, dim]."""
    return embeddings * values.view(-1, 1)


def second_order(batch_size: int, index: Tensor, products: Tensor) -> Tensor:
    """Return the sum of the dot products of all pairs of vectors in each row [batch_size]."""
    empty = torch.zeros(batch_size, products.size(1))
    sums = empty.index_add(0, index, products)
    squares = empty.index_add(0, index, products * products)
    return 0.5 * (sums * sums - squares).sum(1)


def layers(inputs: Tensor, mats: list[Tensor], first: int, count: int) -> Tensor:
    """Apply `count` dense layers from `mats[first]` on, with ReLU between; [batch_size, last]."""
    out = inputs
    for layer in range(count):
        out = out @ mats[first + 2 * layer] + mats[first + 2 * layer + 1]
        if layer + 1 < count:
            out = torch.relu(out)
    return out


def added_by_field(
    batch_size: int, index: Tensor, fields: Tensor, products: Tensor, n_fields: int
) -> Tensor:
    """Return the sums of the vectors of each field of each row [batch_size * n_fields, dim]."""
    if fields.numel() > 0:
        low, high = int(fields.min()), int(fields.max())
        if low < 0 or high >= n_fields:
            raise ValueError(
                f"the data has fields {low} to {high}, but the model was made with --n_fields "
                f"{n_fields}, so fields are 0 to {n_fields - 1}"
            )
    sums = torch.zeros(batch_size * n_fields, products.size(1))
    return sums.index_add(0, index * n_fields + fields, products)


def pairs(fields: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of the first and second field of each pair [pairs]."""
    places = torch.triu_indices(fields, fields, offset=1)
    return places[0], places[1]


def dense_mats(width: int, dims: list[int]) -> list[Tensor]:
    """Return initial weights of dense layers: a matrix and a row of zeros for each."""
    mats = []
    for dim in dims:
        mats += [xavier(width, dim), torch.zeros(1, dim)]
        width = dim
    return mats


def xavier(rows: int, columns: int) -> Tensor:
    """Return a uniform random matrix (Xavier), with which activations keep their variance."""
    bound = math.sqrt(6.0 / (rows + columns))
    return torch.empty(rows, columns).uniform_(-bound, bound)


def require_one_output(fc_dims: list[int]) -> None:
    """Raise `ConfigError` unless the last dense layer has one output, the logit."""
    if fc_dims[-1] != 1:
        shown = " ".join(map(str, fc_dims))
        raise ConfigError(f"--fc_dims {shown}: the last must be 1, the model's output")
