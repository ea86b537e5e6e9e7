"""Lines in the form of the reference DLRM."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from flambeau.cli.criteo.iteration_lines import IterationLines
from flambeau.data.batch import Batch
from flambeau.errors import ConfigError
from flambeau.training.callbacks import TrainingView

LINE = re.compile(
    r"\[3\] Finished training it (\d+)(?:/(\d+))? of epoch (\d+), [\d.]+ ms/it, loss ([\d.]+)"
    r"(?:, accuracy ([\d.]+) %)?"
)


class Given(nn.Module):
    """Puts out what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def lines(
    capsys: pytest.CaptureFixture[str],
    steps: int,
    every: int,
    rows: int | None = None,
    first: int = 0,
) -> list[tuple[str | None, ...]]:
    """What is printed by training on batches of 4 rows, 3 of which are right, with 4 workers."""
    model = Given().train()
    view = TrainingView(model, {}, Path(), rank=3, workers=4, log=lambda values: None, step=first)
    callback = IterationLines(every, rows=rows)
    callback.on_start(view)
    labels = torch.tensor([1.0, 0.0, 1.0, -1.0])
    for step in range(first, first + steps):
        model(torch.tensor([2.0, -1.0, 3.0, 1.0]))
        view.step, view.loss = step + 1, float(step)
        view.epoch = 0 if rows is None else step * 16 // rows
        view.batch = Batch({"label": labels}, 4, 0)
        callback.on_step_end(view)
    text = capsys.readouterr().out
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    assert all(found), text
    return [match.groups() for match in found if match is not None]


def test_a_line_has_the_mean_since_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, steps=5, every=2) == [
        ("2", None, "0", "0.500000", "75.000"),
        ("4", None, "0", "2.500000", "75.000"),
    ]


def test_steps_count_from_the_beginning_of_an_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, steps=8, every=2, rows=64)
    assert [line[:3] for line in found] == [
        ("2", "4", "0"),
        ("4", "4", "0"),
        ("2", "4", "1"),
        ("4", "4", "1"),
    ]


def test_a_resumed_training_counts_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, steps=2, every=1, rows=64, first=5)[0][:3] == ("2", "4", "1")


def test_every_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"every=0: give at least 1"):
        IterationLines(0)
