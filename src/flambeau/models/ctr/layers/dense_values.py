"""Dense values: which numbers models accept next to ids, and how they are used."""

from typing import final

import torch
from torch import Tensor, nn

from flambeau.errors import ModelError


def checked(count: int) -> int:
    """Return the number of dense values in a row; raise `ModelError` if it is negative."""
    if count < 0:
        raise ModelError(f"dense={count}: how many numbers a row has, or 0 for none")
    return count


def ready(dense: Tensor | None, like: Tensor, count: int) -> Tensor:
    """Return the dense values [rows, count] as floating-point numbers, with the rows of `like`.

    Integers are converted. Missing values, scaling and NaN must be handled when data is prepared.
    Raises `ModelError` for another shape.
    """
    rows = like.shape[0]  # not len(), which an exported graph would keep as a constant
    if dense is None:
        if count:
            raise ModelError(
                f"the model has dense={count}, and forward() got no dense values: give "
                f"[rows, {count}] numbers, or build the model with dense=0"
            )
        return like.new_empty(rows, 0)
    if dense.dim() == 1 and count == 1:
        dense = dense[:, None]
    if dense.dim() != 2 or dense.shape[0] != rows or dense.shape[1] != count:
        raise ModelError(
            f"dense values have shape {tuple(dense.shape)}; the model has dense={count}, and the "
            f"ids {rows} rows: give [{rows}, {count}]"
        )
    return dense if dense.is_floating_point() else dense.to(like.dtype)


def beside(rows: Tensor, dense: Tensor | None, count: int) -> Tensor:
    """Return the fields' rows [rows, fields, dim] flattened, followed by the dense values.

    [rows, fields * dim + count]
    """
    flat = rows.flatten(1)
    numbers = ready(dense, flat, count)
    return torch.cat([flat, numbers], dim=1) if count else flat


@final
class DenseVectors(nn.Module):
    """Dense values as further fields: each has a vector, which its value multiplies."""

    def __init__(self, dense: int, dim: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.empty(dense, dim).uniform_(-0.05, 0.05))

    def forward(self, rows: Tensor, dense: Tensor | None) -> Tensor:
        """Return the rows of all fields, the dense ones last. [rows, fields + dense, dim]"""
        numbers = ready(dense, rows, len(self.vectors))
        return torch.cat([rows, numbers[:, :, None] * self.vectors], dim=1)
