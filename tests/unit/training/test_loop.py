import threading
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from training_in_memory import (
    BATCH,
    ROWS,
    Calls,
    Given,
    Model,
    Rows,
    StopAt,
    Training,
    some_batch,
)

from flambeau.config import Binding, CodeRef, FileData, JobSettings, Loading
from flambeau.coordination.plans import IndexedPlan
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import IndexedLoader, StepRows
from flambeau.errors import ConfigError, DataError, JobFailedError
from flambeau.training.callbacks import Callback, TrainingView
from flambeau.training.loop import total_steps
from flambeau.training.position import Position


def test_a_training_ends_after_its_epochs() -> None:
    training = Training(epochs=2)
    assert training.run() == "finished"
    position = training.trainer.position
    assert (position.step, position.epoch, position.rows) == (6, 2, 2 * ROWS)


def test_it_does_what_a_plain_loop_does() -> None:
    training, model, x = Training(epochs=2), Model(), torch.linspace(-1, 1, ROWS)
    training.run()
    optimizer, plan = SGD(model.parameters(), lr=0.1), IndexedPlan(ROWS, BATCH, 1, seed=0)
    for epoch in range(2):
        for step in range(plan.steps()):
            rows = x[torch.from_numpy(plan.indices(epoch, step, 0))]
            optimizer.zero_grad()
            nn.functional.mse_loss(model(rows), 3 * rows).backward()
            optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(training.model.state_dict()[name], tensor)


def test_by_default_each_epoch_is_evaluated_and_saved_once() -> None:
    training = Training(epochs=3, scores=[1.0, 2.0, 3.0])
    training.run()
    assert training.evaluated == [3, 6, 9]
    assert training.saves.steps == [3, 6, 9]


@pytest.mark.parametrize(
    ("checkpoints", "steps"),
    [
        ({"every_steps": 2, "every_epochs": None}, [2, 4, 6]),
        ({"every_steps": 4, "every_epochs": None}, [4, 6]),
        ({"every_steps": 2, "every_epochs": 1}, [2, 3, 4, 6]),
        ({"every_epochs": None}, [6]),
    ],
)
def test_checkpoints_come_when_they_are_due_and_at_the_end(checkpoints: Any, steps: Any) -> None:
    training = Training(epochs=2, checkpoints=checkpoints)
    training.run()
    assert training.saves.steps == steps


@pytest.mark.parametrize(
    ("evaluation", "steps"),
    [
        ({"every_steps": 2, "every_epochs": None}, [2, 4, 6]),
        ({"every_steps": 4, "every_epochs": None}, [4, 6]),
        ({"every_steps": 3, "every_epochs": 1}, [3, 6]),
        ({"every_epochs": 2}, [6]),
    ],
)
def test_evaluations_come_when_they_are_due_and_at_the_end(evaluation: Any, steps: Any) -> None:
    training = Training(epochs=2, evaluation=evaluation, scores=[1.0] * 9)
    training.run()
    assert training.evaluated == steps
    assert [entry["step"] for entry in training.trainer.milestones.history] == steps


def test_max_steps_ends_it_within_an_epoch_evaluated_and_saved() -> None:
    training = Training(epochs=9, max_steps=4, scores=[1.0, 0.5])
    assert training.run() == "finished"
    assert training.evaluated == [3, 4]
    assert training.saves.steps[-1] == training.trainer.position.step == 4


def test_a_checkpoint_has_the_metrics_of_its_own_step_also_if_they_come_after_it() -> None:
    training = Training(
        scores=[1.0, 2.0],
        checkpoints={"every_steps": 1},
        evaluation={"every_steps": 2},
    )
    training.run()
    assert [(step, metrics) for step, metrics, _ in training.saves.made] == [
        (1, {}),
        (2, {"loss": 1.0}),
        (3, {}),
        (3, {"loss": 2.0}),
    ]


def test_the_best_evaluations_are_saved_as_such() -> None:
    training = Training(epochs=4, scores=[2.0, 3.0, 1.0, 1.0], checkpoints={"every_epochs": None})
    training.run()
    assert [(step, best) for step, _, best in training.saves.made] == [
        (3, True),
        (9, True),
        (12, False),
    ]


def test_a_stop_that_is_asked_for_saves_without_evaluating() -> None:
    training = Training(epochs=9, scores=[], stop=lambda: True)
    assert training.run() == "stopped"
    assert training.saves.steps == [1]
    assert training.evaluated == []


def test_a_callback_may_stop_the_training() -> None:
    training = Training(epochs=9, callback=StopAt(1))
    assert training.run() == "stopped"
    assert training.trainer.position.step == 1


def test_a_callback_stops_at_its_own_step_also_between_two_beats() -> None:
    training = Training(epochs=9, callback=StopAt(5))
    training.trainer._pulse._due = 1_000  # type: ignore[attr-defined]
    assert training.run() == "stopped"
    assert training.trainer.position.step == 5


class StopAfterEvaluation(Callback):
    def on_evaluation(self, view: TrainingView, metrics: Mapping[str, float]) -> None:
        view.stop()


def test_a_stop_after_an_evaluation_comes_before_the_next_step() -> None:
    training = Training(epochs=9, scores=[1.0], callback=StopAfterEvaluation())
    assert training.run() == "stopped"
    assert training.trainer.position.step == 3


def test_the_last_progress_counts_the_epochs_that_were_trained() -> None:
    training = Training(epochs=2)
    training.run()
    epochs = [fields["epoch"] for kind, fields in training.events if kind == "progress"]
    assert set(epochs) <= {0, 1}
    assert epochs[-1] == 1


def test_a_stop_that_comes_after_the_last_step_changes_nothing() -> None:
    training = Training(epochs=1, scores=[1.0], callback=StopAt(3))
    assert training.run() == "finished"
    assert training.evaluated == [3]


def test_early_stopping_ends_a_training_that_no_longer_improves() -> None:
    training = Training(epochs=9, scores=[1.0, 2.0, 2.0, 0.0], early_stopping={"patience": 2})
    assert training.run() == "finished"
    assert training.evaluated == [3, 6, 9]
    assert training.saves.steps[-1] == 9


def test_early_stopping_on_a_metric_that_is_not_evaluated_is_explained() -> None:
    with pytest.raises(ConfigError, match="no metric 'auc' to watch; available metrics: loss"):
        Training(epochs=9, scores=[1.0], early_stopping={"metric": "auc"})


def test_a_diverging_loss_names_step_and_epoch() -> None:
    training = Training(epochs=500, lr=1e12)
    with pytest.raises(JobFailedError, match=r"at step \d+ of epoch \d+; .*diverged"):
        training.run()


def test_a_column_that_is_not_finite_is_named() -> None:
    x = torch.linspace(-1, 1, ROWS)
    x[7] = float("nan")
    with pytest.raises(DataError, match="epoch 0: column 'x' is not finite in row"):
        Training(x=x).run()


def test_callbacks_are_told_everything_in_order() -> None:
    calls = Calls()
    Training(epochs=1, callback=calls).run()
    steps = [("step", 1), ("step", 2), ("step", 3)]
    assert calls.made == [("start", 0), *steps, ("epoch", 3), ("end", 3)]


def test_on_resume_callbacks_start_at_the_step_that_was_reached() -> None:
    calls = Calls()
    position = Position(step=3, epoch=1, rows=ROWS)
    Training(epochs=2, callback=calls, position=position).run()
    assert calls.made[:2] == [("start", 3), ("step", 4)]


def test_observers_are_told_everything_in_order() -> None:
    training = Training(epochs=2, scores=[1.0, 0.5])
    training.run()
    kinds = training.kinds("epoch_start", "epoch_end", "evaluation")
    # The last evaluation is that of the end, which is the second epoch's.
    assert kinds == ["epoch_start", "epoch_end", "evaluation"] * 2
    assert sum(f["rows"] > 0 for kind, f in training.events if kind == "progress") >= 1


@pytest.mark.parametrize("done", range(1, 6))
def test_a_resumed_training_ends_with_the_same_weights(done: int) -> None:
    whole, first = Training(epochs=2), Training(epochs=2, max_steps=done)
    whole.run()
    first.run()
    rest = Training(epochs=2, position=Position(**first.trainer.position.dump()))
    rest.model.load_state_dict(first.model.state_dict())
    rest.run()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], tensor), name


def test_a_training_stopped_at_an_epochs_last_step_is_evaluated_when_resumed() -> None:
    position = Position(step=3, step_in_epoch=3, rows=ROWS, rows_in_epoch=ROWS)
    training = Training(epochs=2, scores=[1.0, 2.0], position=position)
    training.run()
    assert training.evaluated == [3, 6]


def test_a_step_that_was_evaluated_before_is_not_again_when_resumed() -> None:
    position = Position(step=3, epoch=1, rows=ROWS)
    training = Training(epochs=1, scores=[], position=position)
    training.trainer.milestones.history = [{"step": 3, "epoch": 1, "loss": 1.0}]
    assert training.run() == "finished"
    assert training.saves.made == []


@pytest.mark.parametrize(
    ("position", "settings", "total"),
    [
        (Position(), {"epochs": 4}, 12),
        (Position(step=5, epoch=1, step_in_epoch=2), {"epochs": 4}, 12),
        (Position(step=4, epoch=1, start_row=4), {"epochs": 3}, 4 + 2 + 3),
        (Position(), {"epochs": 4, "max_steps": 7}, 7),
    ],
)
def test_the_number_of_steps_is_known_in_advance(
    position: Position, settings: Any, total: int
) -> None:
    assert Training(position=position, **settings).trainer.steps_total == total


def test_an_iterator_trains_until_it_ends() -> None:
    loader = Given([StepRows(some_batch(), None)] * 2, known=False)
    training = Training(epochs=2, loader=loader)
    assert training.trainer.steps_total is None
    assert training.run() == "finished"
    assert training.trainer.position.step == 4


def test_a_worker_without_rows_in_a_step_changes_neither_weights_nor_statistics() -> None:
    states = []
    for more in ([], [StepRows(None, 3)]):
        loader = Given([StepRows(some_batch(), BATCH), *more], known=True)
        training = Training(loader=loader)
        training.run()
        states.append(training.model.state_dict())
    for name, tensor in states[0].items():
        assert torch.equal(states[1][name], tensor), name


def test_a_worker_that_never_has_rows_is_an_error() -> None:
    with pytest.raises(DataError, match="worker 0 has no rows at all; use fewer workers"):
        Training(loader=Given([StepRows(None, 3)], known=True)).run()


def test_the_loaders_thread_ends_with_an_epoch_that_fails() -> None:
    x = torch.full((ROWS,), float("nan"))
    with pytest.raises(DataError):
        Training(x=x).run()
    assert "flambeau-loader" not in [thread.name for thread in threading.enumerate()]


def test_the_length_of_a_training_follows_from_where_it_goes_on() -> None:
    settings = JobSettings(model=CodeRef(path="a:b"), train=FileData(path="x"), epochs=3)
    binder = Binder(Binding(), lambda x: x, Shape(("x",), ("x",)))
    source = Rows(torch.arange(11.0))
    total = len(source)
    plan = IndexedPlan(total, 1, 2, 0)
    loader = IndexedLoader(source, plan, 0, binder, None, Loading(), 0)
    alone = Position(step=total + 2, epoch=1, start_row=2)
    expected = alone.step + -(-(total - 2) // 2) + -(-total // 2)
    assert total_steps(settings, loader, alone) == expected
    done = Position(step=99, epoch=3)
    assert total_steps(settings, loader, done) == 99
