"""Data of the driver's memory, for workers that inherit nothing of the driver."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hosts import Hosts
from torch.utils.data import TensorDataset
from toy import QUIET, Net, assert_same_weights, make_data

import flambeau as fb
from flambeau.checkpoint import RunDirectory

pytestmark = pytest.mark.usefixtures("loaded_once")

X, Y = make_data()
COMMON: dict[str, Any] = {
    "loss": "cross_entropy",
    "optimizer": fb.optim("sgd", lr=0.1, momentum=0.9),
    "epochs": 2,
    "observe": QUIET,
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one process learns from the same rows, with the twofold batch."""
    return fb.fit(
        Net(), train=(X, Y), batch_size=16, run_dir=tmp_path_factory.mktemp("one"), **COMMON
    )


def frame() -> pd.DataFrame:
    columns = {f"x{number}": X[:, number] for number in range(6)}
    return pd.DataFrame({**columns, "y": Y})


def mapped(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def data(kind: str, tmp_path: Path) -> dict[str, Any]:
    if kind == "arrays":
        return {"train": (X, Y), "valid": (mapped(tmp_path), torch.from_numpy(Y))}
    if kind == "frame":
        return {
            "train": frame(),
            "valid": frame(),
            "inputs": {"x": [f"x{number}" for number in range(6)]},
            "label": "y",
        }
    return {"train": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("arrays", {"shared_files": False}),
        ("arrays", {"shared_files": True, "carry_mb": 0}),
        ("frame", {"shared_files": False, "carry_mb": 0, "depot": "local"}),
        ("dataset", {"shared_files": False}),
    ],
    ids=["brought", "seen", "by the depot", "dataset"],
)
def test_two_agents_equal_one_process(
    kind: str, more: dict[str, Any], one: Any, tmp_path: Path
) -> None:
    if "depot" in more:
        (tmp_path / "depot").mkdir()
        more = {**more, "depot": f"file://{tmp_path}/depot"}
    given = data(kind, tmp_path)
    cluster = Hosts(workers=2, spool_dir=str(tmp_path), **more)
    many = fb.fit(
        Net(), **given, cluster=cluster, batch_size=8, run_dir=tmp_path / "many", **COMMON
    )
    assert_same_weights(many, one)
    assert not RunDirectory(tmp_path / "many").shared.exists()
    assert not list(tmp_path.glob("flambeau-*"))
    assert not list(tmp_path.glob("depot/*"))
