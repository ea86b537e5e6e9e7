"""A worker whose steps the others make without it, and what a strategy is told of a step."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch import Tensor, nn
from torch.optim import Optimizer
from training_in_memory import BATCH, ROWS, Calls, Given, Training, some_batch

from flambeau.data.batch import Batch
from flambeau.data.loader import StepRows
from flambeau.strategies.base import StepShare, Strategy
from flambeau.training.schedules import LearningRate


class Rounds(Strategy):
    """Rounds that others may close without this worker.

    `reached` says for some of the steps how far all are when this worker's gradient arrives.
    """

    def __init__(self, reached: dict[int, int] | None = None, stop_at: int | None = None) -> None:
        self._reached, self._stop_at = reached or {}, stop_at
        self._done = 0
        self.begun: list[StepShare] = []
        self.seen: list[tuple[Batch, Batch | None]] = []

    def attach(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, own_step: bool
    ) -> Callable[..., Any]:
        return model

    def begin(self, rows: StepShare) -> float:
        self.begun.append(rows)
        return 1.0

    def backward(self, loss: Tensor, *, last: bool) -> None:
        pass

    def update(self, name: str = "") -> None:
        step = self.begun[-1].batch
        self._done = self._reached.get(step, step + 1)
        self.stop = step == self._stop_at

    def synchronize(self) -> None:
        pass

    def look_ahead(self, batch: Batch, upcoming: Batch | None) -> None:
        self.seen.append((batch, upcoming))

    def sit_out(self, rows: StepShare) -> bool:
        self.begun.append(rows)
        self.update()
        return True

    @property
    def steps_done(self) -> int:
        return self._done

    @property
    def trained(self) -> list[int]:
        return [rows.batch for rows in self.begun]


class Counting(LearningRate):
    updates = 0

    def step(self) -> None:
        self.updates += 1

    def epoch_end(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def test_a_strategy_is_told_the_rows_and_the_number_of_each_step() -> None:
    strategy = Rounds()
    Training(strategy=strategy).run()
    assert strategy.begun == [StepShare(4, 4, 0), StepShare(4, 4, 1), StepShare(2, 2, 2)]


def test_steps_that_the_others_have_made_are_passed_over() -> None:
    strategy = Rounds({0: 4})
    training = Training(epochs=2, strategy=strategy)
    assert training.run() == "finished"
    assert strategy.trained == [0, 4, 5]
    position = training.trainer.position
    assert (position.step, position.epoch, position.rows) == (6, 2, 2 * ROWS)


def test_schedules_move_on_with_steps_that_are_passed_over() -> None:
    schedule = Counting()
    Training(epochs=2, strategy=Rounds({0: 4}), schedules={"": schedule}).run()
    assert schedule.updates == 6


def test_callbacks_hear_of_epochs_but_not_of_steps_that_are_passed_over() -> None:
    calls = Calls()
    Training(epochs=2, strategy=Rounds({0: 4}), callback=calls).run()
    steps = [("step", 1), ("epoch", 3), ("step", 5), ("step", 6), ("epoch", 6)]
    assert calls.made == [("start", 0), *steps, ("end", 6)]


def test_a_worker_meets_the_others_also_after_a_step_that_it_passed_over() -> None:
    training = Training(
        epochs=2,
        scores=[1.0] * 3,
        strategy=Rounds({0: 2, 2: 5}),
        evaluation={"every_steps": 2, "every_epochs": None},
        checkpoints={"every_steps": 5, "every_epochs": None},
    )
    training.run()
    assert training.evaluated == [2, 4, 6]
    # The first evaluation is the best one.
    assert training.saves.steps == [2, 5, 6]


def test_a_limit_of_steps_holds_also_for_those_that_are_passed_over() -> None:
    strategy = Rounds({0: 4})
    training = Training(epochs=9, max_steps=4, strategy=strategy)
    assert training.run() == "finished"
    assert (strategy.trained, training.trainer.position.step) == ([0], 4)


def test_all_stop_at_the_same_step() -> None:
    strategy = Rounds({0: 4}, stop_at=0)
    training = Training(epochs=9, strategy=strategy)
    assert training.run() == "stopped"
    assert (strategy.trained, training.trainer.position.step) == ([0], 4)
    assert training.saves.steps[-1] == 4


@pytest.mark.parametrize("ahead", [False, True])
def test_the_next_batch_is_shown_to_a_strategy_that_looks_ahead(ahead: bool) -> None:
    strategy = Rounds()
    strategy.looks_ahead = ahead
    Training(strategy=strategy).run()
    batches = [batch for batch, _ in strategy.seen]
    upcoming = [following for _, following in strategy.seen]
    expected = [*batches[1:], None] if ahead else [None] * 3
    assert all(one is other for one, other in zip(upcoming, expected, strict=True))
    assert [batch.index for batch in batches] == [0, 1, 2]


def test_a_strategy_may_take_part_without_rows_though_the_worker_never_had_any() -> None:
    strategy = Rounds()
    training = Training(strategy=strategy, loader=Given([StepRows(None, 3)], known=True))
    assert training.run() == "finished"
    assert strategy.begun == [StepShare(0, 3, 0)]


def test_a_step_without_rows_shows_nothing_ahead() -> None:
    strategy = Rounds()
    steps = [StepRows(some_batch(), BATCH), StepRows(None, 3)]
    Training(strategy=strategy, loader=Given(steps, known=True)).run()
    assert len(strategy.seen) == 1
