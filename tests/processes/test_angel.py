"""`flambeau angel` from a model file to predictions, on data that is like Angel's census."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from flambeau.compat.angel import torchscript
from flambeau.compat.angel.making import make

pytestmark = pytest.mark.usefixtures("loaded_once")

INPUT_DIM, FIELDS = 148, 13
MAKE = f"deepfm --input_dim {INPUT_DIM} --n_fields {FIELDS} --embedding_dim 4 --fc_dims 8 1"
LINE = re.compile(r"epoch (\d+) loss (\S+) train auc (\S+) train acc \S+ validate loss (\S+) vali")


def write_census(path: Path, rows: int, seed: int, negative: int = 0) -> None:
    """One id for each field in every row; their weights give the label, 1 or `negative`."""
    chosen, weights = np.random.default_rng(seed), np.random.default_rng(0).normal(size=INPUT_DIM)
    bounds = np.linspace(0, INPUT_DIM, FIELDS + 1).astype(int)
    ids = chosen.integers(bounds[:-1], bounds[1:], (rows, FIELDS))
    labels = weights[ids].sum(1) + chosen.logistic(size=rows) > 0
    lines = (" ".join(f"{number + 1}:1" for number in row) for row in ids)
    path.write_text(
        "".join(f"{1 if y else negative} {x}\n" for y, x in zip(labels, lines, strict=True))
    )


def angel(folder: Path, words: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "flambeau", "angel", *words.split()]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def auc(lines: list[str]) -> float:
    target, score = np.array([line.split("\t") for line in lines], dtype=float).T
    return float((score[target == 1][:, None] > score[target == 0]).mean())


def test_a_job_trains_predicts_and_goes_on(tmp_path: Path) -> None:
    write_census(tmp_path / "train", 4000, seed=1)
    write_census(tmp_path / "test", 500, seed=2)
    make([*MAKE.split(), "-o", str(tmp_path / "deepfm.pt")])
    train = "torchModelPath:deepfm.pt batchSize:64 evals:auc,acc workers:2 servers:1 "
    first = angel(
        tmp_path,
        train + "trainInput:train numEpoch:2 angelModelOutputPath:tables "
        "torchOutputModelPath:trained.pt",
    )
    epochs = [match.groups() for match in LINE.finditer(first)]
    assert [epoch for epoch, *_ in epochs] == ["1", "2"]
    assert float(epochs[1][2]) > 0.8, first

    predicted = angel(
        tmp_path,
        "actionType:predict input:test torchModelPath:deepfm.pt angelModelInputPath:tables "
        "predictOutputPath:scores",
    )
    lines = (tmp_path / "scores" / "part-00000").read_text().splitlines()
    assert "500 rows written" in predicted
    assert len(lines) == 500
    assert auc(lines) > 0.8

    again = angel(
        tmp_path,
        train + "input:train validateInput:test numEpoch:1 angelModelInputPath:tables async:false",
    )
    (went_on,) = LINE.findall(again)
    assert float(went_on[2]) > float(epochs[0][2]), "it began where the first training ended"

    plain = torchscript.read(tmp_path / "trained.pt")
    assert plain.weights.shape == (INPUT_DIM, 1)
    row = (tmp_path / "test").read_text().splitlines()[0].split()[1:]
    feats = torch.tensor([int(item.split(":")[0]) - 1 for item in row])
    score = plain(1, torch.zeros(FIELDS, dtype=torch.int64), feats, torch.ones(FIELDS)).item()
    assert abs(score - float(lines[0].split("\t")[1])) < 1e-5


def test_the_quick_start_of_angel_runs_word_for_word(tmp_path: Path) -> None:
    write_census(tmp_path / "census", 1000, seed=1, negative=-1)
    words = "--input_dim 148 --n_fields 13 --embedding_dim 10 --fc_dims 10 5 1"
    make(["deepfm", *words.split(), "-o", str(tmp_path / "deepfm.pt")])
    printed = angel(
        tmp_path,
        "input:census batchSize:128 torchModelPath:deepfm.pt stepSize:0.001 numEpoch:10 "
        "partitionNum:5 modulePath:out",
    )
    assert "the labels are -1 and 1; they are learned as 0 and 1" in printed
    losses = [float(loss) for loss in re.findall(r"epoch \d+ loss (\S+)", printed)]
    assert len(losses) == 10
    assert 0 < losses[-1] < losses[0]
    assert torchscript.read(tmp_path / "out").weights.shape == (INPUT_DIM, 1)
