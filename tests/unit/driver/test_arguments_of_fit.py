"""Arguments that are often meant otherwise: each error says what to give instead."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from torch import nn

import flambeau as fb
from flambeau.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.1}, r"no argument 'learning_rate'; give optimizer=fb.optim\(.*lr=0.1"),
        ({"batchsize": 7}, r"no argument 'batchsize'; did you mean 'batch_size'"),
        ({"cluster": 2}, r"cluster=2: give fb.Local\(2\)"),
        ({"train": pl.LazyFrame({"x": [1.0]})}, r"train= is a LazyFrame.*\.collect\(\)"),
    ],
)
def test_the_right_argument_is_named(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    arguments = {"train": {"x": [1.0]}, "run_dir": tmp_path / "run", **given}
    with pytest.raises(ConfigError, match=message):
        fb.fit(nn.Linear(1, 1), **arguments)


def test_a_number_is_no_cluster_for_run_either() -> None:
    with pytest.raises(ConfigError, match=r"give fb.Local\(3\)"):
        fb.run(print, cluster=3)


def test_torchs_schedulers_go_by_their_names() -> None:
    schedule = fb.Schedule(kind="torch", scheduler="ReduceLROnPlateau")
    assert schedule.scheduler == "torch.optim.lr_scheduler:ReduceLROnPlateau"
