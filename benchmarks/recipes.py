"""The AUC of what the guide says to begin with, against references that share no code with it.

One line of JSON for each set and model: `auc` of `fb.fit` with the recipe of "Start with this" in
docs/guide/recommenders.md, the `reference` and their `difference`. The reference of LR is
scikit-learn's LogisticRegression (the better of two regularisations), that of DeepFM a model of
plain torch, with the same optimizers and first weights of layers. DeepFM's are means over seeds,
and `error` is the standard error of the difference.
"""

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dlrm_auc import Clicks
from measure import tell
from scipy.sparse import csr_matrix, hstack
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor, nn

import flambeau as fb
from flambeau.models import LR, DeepFM

Array = np.ndarray
BINS, DIM, HIDDEN = 10, 8, (64, 32)


@dataclass(frozen=True)
class Rows:
    """Ids [rows, fields] that count from 0 in each field, numbers [rows, n] and labels."""

    ids: Array
    dense: Array
    label: Array

    def columns(self) -> dict[str, Array]:
        """As `fb.fit` takes them."""
        numbers = {"dense": self.dense} if self.dense.shape[1] else {}
        return {"ids": self.ids, **numbers, "label": self.label}


@dataclass(frozen=True)
class Set:
    """Rows to train on and others to test on; `small` ones have a few hundred or thousand."""

    name: str
    train: Rows
    valid: Rows
    small: bool


def main() -> None:
    """Compare both models on all sets."""
    options = parse_options()
    seeds = range(1 if options.quick else options.seeds)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rows = options.rows // (10 if options.quick else 1)
        for data in (cancer(), digits("eight", 8), digits("even", None), clicks(directory, rows)):
            run_dir = directory / data.name
            compare("lr", data, [our_lr(data, run_dir / "lr")], [scikit_lr(data)])
            ours = [our_deepfm(data, seed, run_dir / f"deepfm-{seed}") for seed in seeds]
            plain = [plain_deepfm(data, seed) for seed in seeds]
            compare("deepfm", data, ours, plain)


def compare(model: str, data: Set, ours: list[float], plain: list[float]) -> None:
    """Print one line."""
    auc, reference = statistics.fmean(ours), statistics.fmean(plain)
    values: dict[str, Any] = {"auc": auc, "reference": reference, "difference": auc - reference}
    if len(ours) > 1:
        squares = statistics.variance(ours) + statistics.variance(plain)
        values["error"] = (squares / len(ours)) ** 0.5
    tell(f"recipes/{data.name}/{model}", **values, rows=len(data.train.label))


def cancer() -> Set:
    """Return scikit-learn's breast cancer data, each number in one of ten quantiles."""
    x, y = load_breast_cancer(return_X_y=True)
    edges = np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    ids = [np.searchsorted(edges[:, field], x[:, field]) for field in range(x.shape[1])]
    return _split("breast_cancer", np.stack(ids, axis=1), y)


def digits(name: str, digit: int | None) -> Set:
    """Return scikit-learn's digits: one against the rest, or the even ones; pixels are ids."""
    x, y = load_digits(return_X_y=True)
    return _split(f"digits_{name}", x, y % 2 == 0 if digit is None else y == digit)


def clicks(directory: Path, rows: int) -> Set:
    """Return generated clicks, as `flambeau generate clicks` writes them."""
    made = Clicks(directory, rows, rows // 50)
    train, valid = (
        Rows(*(part[name].numpy() for name in ("ids", "dense", "label")))
        for part in (made.train, made.valid)
    )
    return Set("clicks", train, valid, small=False)


def _split(name: str, ids: Array, label: Array) -> Set:
    rows = train_test_split(np.arange(len(label)), test_size=0.3, random_state=0, stratify=label)
    train, valid = (
        Rows(ids[own].astype(np.int64), np.zeros((len(own), 0)), label[own].astype(np.float32))
        for own in rows
    )
    return Set(name, train, valid, small=True)


def our_lr(data: Set, run_dir: Path) -> float:
    """Return the AUC of LR by the recipe for few rows, or for many."""
    recipe: dict[str, Any] = {
        "optimizer": fb.optim("adam", lr=1e-2),
        "table_optimizer": fb.optim("adagrad", lr=0.05),
        "epochs": 3,
    }
    if data.small:
        recipe |= {"table_optimizer": fb.optim("sgd", lr=1.0), "epochs": 20, "batch_size": 64}
    return _fit(lambda: LR(_fields(data), _numbers(data)), data, run_dir, recipe)


def our_deepfm(data: Set, seed: int, run_dir: Path) -> float:
    """Return the AUC of DeepFM with the defaults of `fit`."""
    recipe = {"epochs": 5 if data.small else 1, "seed": seed}
    return _fit(lambda: DeepFM(_fields(data), _numbers(data), DIM, HIDDEN), data, run_dir, recipe)


def _fit(model: Callable[[], nn.Module], data: Set, run_dir: Path, recipe: dict[str, Any]) -> float:
    result = fb.fit(
        model,
        data.train.columns(),
        valid=data.valid.columns(),
        label="label",
        loss="bce",
        metrics=["auc"],
        observe={"progress": "none"},
        checkpoints={"every_epochs": None},
        run_dir=run_dir,
        **recipe,
    )
    return float(result.metrics["auc"])


def scikit_lr(data: Set) -> float:
    """Return the AUC of logistic regression on one-hot ids and numbers."""
    encoder = OneHotEncoder(handle_unknown="ignore").fit(data.train.ids)
    train, valid = (
        hstack([encoder.transform(part.ids), csr_matrix(part.dense)]).tocsr()
        for part in (data.train, data.valid)
    )
    found = []
    for strength in (0.1, 1.0):
        model = LogisticRegression(C=strength, max_iter=1000).fit(train, data.train.label)
        found.append(roc_auc_score(data.valid.label, model.decision_function(valid)))
    return float(max(found))


class PlainDeepFM(nn.Module):
    """DeepFM of `nn.Embedding`s, with an id space for each field."""

    def __init__(self, sizes: list[int], dense: int) -> None:
        super().__init__()
        self.first = torch.tensor([0, *sizes[:-1]]).cumsum(0)
        self.vectors, self.weights = nn.Embedding(sum(sizes), DIM), nn.Embedding(sum(sizes), 1)
        nn.init.uniform_(self.vectors.weight, -0.05, 0.05)
        nn.init.zeros_(self.weights.weight)
        widths = [len(sizes) * DIM + dense, *HIDDEN]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))
        for layer in self.deep:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.numbers = nn.Parameter(torch.zeros(dense))

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        """Logits. [rows]"""
        ids = ids + self.first
        rows = self.vectors(ids)
        pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1)
        linear = self.weights(ids).sum((1, 2)) + dense @ self.numbers
        return linear + pairs + self.deep(torch.cat([rows.flatten(1), dense], 1))[:, 0]


def plain_deepfm(data: Set, seed: int) -> float:
    """Return the AUC of the plain model after as many epochs of batches of as many rows."""
    torch.manual_seed(seed)
    both = np.concatenate([data.train.ids, data.valid.ids])
    model = PlainDeepFM([int(size) + 1 for size in both.max(0)], _numbers(data))
    layers = [*model.deep.parameters(), model.numbers]
    parts = [
        torch.optim.Adam(layers, lr=1e-3),
        torch.optim.Adagrad(model.vectors.parameters(), lr=0.02),
        torch.optim.Adagrad(model.weights.parameters(), lr=0.05),
    ]
    train, valid = (
        [torch.from_numpy(column) for column in (part.ids, part.dense.astype("f4"), part.label)]
        for part in (data.train, data.valid)
    )
    for _ in range(5 if data.small else 1):
        for rows in torch.randperm(len(train[0])).split(128):
            logits = model(train[0][rows], train[1][rows])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, train[2][rows])
            model.zero_grad()
            loss.backward()
            for part in parts:
                part.step()
    with torch.no_grad():
        return float(roc_auc_score(valid[2].numpy(), model(valid[0], valid[1]).numpy()))


def _fields(data: Set) -> int:
    return int(data.train.ids.shape[1])


def _numbers(data: Set) -> int:
    return int(data.train.dense.shape[1])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="clicks to generate")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one seed, a tenth of the clicks")
    return parser.parse_args()


if __name__ == "__main__":
    main()
