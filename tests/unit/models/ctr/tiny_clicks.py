"""Models with rows and weights that a test knows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flambeau.config import optim
from flambeau.embeddings import train_in_process
from flambeau.embeddings.attach import tables_of
from flambeau.embeddings.fields import table_id
from flambeau.embeddings.own_loop import TableTraining
from flambeau.models import build

FIELDS, DENSE, DIM, IDS = 3, 2, 2, 4

#: Arguments that make every model small.
SMALL: dict[str, dict[str, Any]] = {
    "lr": {},
    "fm": {},
    "ffm": {},
    "wide_and_deep": {"hidden": (4, 3)},
    "deepfm": {"hidden": (4, 3)},
    "dcn": {"hidden": (4, 3), "cross_layers": 2},
    "dcnv2": {"hidden": (4, 3), "cross_layers": 2},
    "xdeepfm": {"hidden": (4, 3), "cin": (3, 2)},
    "pnn": {"hidden": (4, 3)},
    "afm": {"attention": 3},
    "autoint": {"layers": 2, "heads": 2, "head_dim": 3, "hidden": ()},
    "dlrm": {"bottom": (4,), "top": (4, 3)},
    "final_mlp": {"hidden": (4, 4), "second": (6,), "gate": (3,), "heads": 2},
    "field_attention": {"hidden": (4, 3), "heads": 2},
}


def small(name: str, fields: int | None = FIELDS, dense: int = DENSE, **args: Any) -> nn.Module:
    """A model by name, with little in it."""
    wide = {} if name == "lr" else {"embedding_dim": DIM}
    return build(name, **{"fields": fields, "dense": dense, **wide, **SMALL[name], **args})


def attached(model: nn.Module) -> TableTraining:
    """Give it tables in this process."""
    return train_in_process(model, optim("sgd", lr=0.1))


@dataclass
class Tiny:
    """A model in float64, a batch for it, and the numbers in both.

    `weights` are its parameters by name; `rows` and `linear` what the tables have for the batch:
    [rows, fields, width] and [rows, fields].
    """

    model: nn.Module
    ids: Tensor
    numbers: Tensor
    weights: dict[str, np.ndarray]
    rows: np.ndarray
    linear: np.ndarray

    @property
    def dense(self) -> np.ndarray:
        return self.numbers.numpy()

    def logits(self) -> np.ndarray:
        with torch.no_grad():
            found: Tensor = self.model(self.ids, self.numbers)
        return found.numpy()

    def first_order(self, row: int, part: str = "linear") -> float:
        """b + the weights of the ids + those of the numbers, one after the other."""
        total = float(self.weights[f"{part}.bias"][0])
        for field in range(FIELDS):
            total += self.linear[row, field]
        for number in range(DENSE):
            total += self.dense[row, number] * self.weights[f"{part}.weight"][number]
        return total

    def flat(self, row: int) -> np.ndarray:
        """The rows of the fields in a line, and the numbers behind them."""
        return np.concatenate([*self.rows[row], self.dense[row]])

    def perceptron(self, part: str, x: np.ndarray, last_is_plain: bool = True) -> np.ndarray:
        """ReLU after each layer, but for a last one that is plain."""
        names = sorted(key[:-7] for key in self.weights if key.startswith(f"{part}.layers."))
        layers = sorted(
            {name for name in names if f"{name}.weight" in self.weights},
            key=lambda name: int(name.rsplit(".", 1)[1]),
        )
        for at, name in enumerate(layers):
            x = self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]
            if not (last_is_plain and at == len(layers) - 1):
                x = np.maximum(x, 0)
        return x


def tiny(name: str, seed: int = 0, **args: Any) -> Tiny:
    """A model whose weights and rows are random numbers, large enough that all of them matter."""
    chance = np.random.default_rng(seed)
    model = small(name, table={"dtype": "fp64"}, **args).double()
    training = attached(model)
    for parameter in model.parameters():
        parameter.data = torch.from_numpy(chance.normal(size=parameter.shape))
    ids = chance.integers(0, IDS, size=(5, FIELDS))
    tables = {}
    for spec in tables_of(model):
        values = chance.normal(size=(FIELDS, IDS, spec.dim))
        places = [table_id(id, field) for field in range(FIELDS) for id in range(IDS)]
        training.tables.load(spec, np.array(places), values.reshape(-1, spec.dim))
        tables[spec.name] = values[np.arange(FIELDS), ids]
    return Tiny(
        model,
        torch.from_numpy(ids),
        torch.from_numpy(chance.normal(size=(len(ids), DENSE))),
        {key: value.detach().numpy() for key, value in model.named_parameters()},
        tables.get("embeddings", np.zeros((5, FIELDS, 1))),
        tables.get("linear", np.zeros((5, FIELDS, 1)))[:, :, 0],
    )
