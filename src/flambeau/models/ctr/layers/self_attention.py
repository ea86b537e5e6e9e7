"""Self-attention over fields."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.errors import ModelError
from flambeau.models.ctr.layers.linear import Linear


@final
class SelfAttention(nn.Module):
    """ReLU([o_1 ... o_H] + R x), where head h gives field i the vector sum_j a_ij V_h x_j.

    a_i = softmax over j of <Q_h x_i, K_h x_j>, divided by sqrt(head_dim) if `scaled`. `width` is
    that of the result, heads * head_dim.
    """

    def __init__(
        self, dim: int, heads: int, head_dim: int, scaled: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if heads < 1 or head_dim < 1:
            raise ModelError(f"heads={heads} of {head_dim} numbers: both must be at least 1")
        self.heads, self.dropout = heads, dropout
        self.scale = head_dim**-0.5 if scaled else 1.0
        self.width = heads * head_dim
        self.query, self.key, self.value, self.residual = (
            Linear(dim, self.width, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention's output [rows, fields, width] for `x` [rows, fields, dim]."""
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(
            self._split(self.query(x)),
            self._split(self.key(x)),
            self._split(self.value(x)),
            dropout_p=dropout,
            scale=self.scale,
        )
        return torch.relu(heads.transpose(1, 2).flatten(2) + self.residual(x))

    def _split(self, x: Tensor) -> Tensor:
        """Reshape [rows, fields, width] to [rows, heads, fields, head_dim]."""
        rows, fields, _ = x.shape
        return x.view(rows, fields, self.heads, self.width // self.heads).transpose(1, 2)
