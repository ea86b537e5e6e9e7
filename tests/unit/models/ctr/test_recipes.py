"""What the guide says to begin with learns as much as an independent implementation does."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import flambeau as fb
from flambeau.embeddings import train_in_process
from flambeau.models import LR

EPOCHS, BATCH_ROWS, BINS = 20, 64, 10


def quantiles() -> tuple[np.ndarray, np.ndarray]:
    """Numbers as ids of their quantiles, [rows, fields], and labels."""
    x, y = load_breast_cancer(return_X_y=True)
    edges = np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    ids = [np.searchsorted(edges[:, field], x[:, field]) for field in range(x.shape[1])]
    return np.stack(ids, axis=1), y.astype(np.float32)


def test_lr_by_the_recipe_for_few_rows_is_as_good_as_scikit_learn() -> None:
    ids, label = quantiles()
    order = np.random.default_rng(0).permutation(len(label))
    train, valid = order[:400], order[400:]
    encoder = OneHotEncoder(handle_unknown="ignore").fit(ids[train])
    reference = LogisticRegression(max_iter=1000).fit(encoder.transform(ids[train]), label[train])
    expected = roc_auc_score(
        label[valid], reference.decision_function(encoder.transform(ids[valid]))
    )

    torch.manual_seed(0)
    model = LR(ids.shape[1], dense=0)
    weights = torch.optim.Adam(model.parameters(), lr=1e-2)
    tables = train_in_process(model, fb.optim("sgd", lr=1.0))
    x, y = torch.from_numpy(ids), torch.from_numpy(label)
    for _ in range(EPOCHS):
        for rows in torch.from_numpy(train)[torch.randperm(len(train))].split(BATCH_ROWS):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]), y[rows])
            weights.zero_grad()
            loss.backward()
            weights.step()
            tables.step()
    with torch.no_grad():
        found = roc_auc_score(label[valid], model.eval()(x[valid]).numpy())
    assert found > expected - 0.002
