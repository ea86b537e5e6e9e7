import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
from torch import Tensor, nn

from flambeau.data.batch import Batch
from flambeau.errors import DataError, MissingDependencyError, ModelError
from flambeau.training.callbacks import TrainingView
from flambeau.training.tensorboard import TensorBoardExtras


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.drop(self.norm(x)))


def make_batch() -> Batch:
    image = torch.linspace(-2, 2, 4 * 3 * 5 * 5).reshape(4, 3, 5, 5)
    columns = {"x": torch.randn(4, 2), "label": torch.tensor([0, 1, 1, 0]), "image": image}
    return Batch(columns, 4)


def make_view(path: Path, rank: int = 0) -> TrainingView:
    return TrainingView(
        model=Model(),
        optimizers={},
        run_dir=path,
        rank=rank,
        workers=2,
        log=lambda values: None,
        batch=make_batch(),
        arguments=lambda batch: ([], {"x": batch["x"]}),
    )


def train(callback: TensorBoardExtras, view: TrainingView, steps: int = 1) -> None:
    callback.on_start(view)
    assert view.batch is not None
    for step in range(1, steps + 1):
        view.model(view.batch["x"]).sum().backward()
        view.model.zero_grad(set_to_none=True)
        view.step = step
        callback.on_step_end(view)
    callback.on_epoch_end(view)
    callback.on_end(view)


def read(path: Path) -> EventAccumulator:
    accumulator = EventAccumulator(
        str(path / "tensorboard" / "extras"), {"histograms": 0, "images": 0}
    )
    accumulator.Reload()
    return accumulator


def test_histograms_of_weights_and_gradients_come_every_n_steps(tmp_path: Path) -> None:
    train(TensorBoardExtras(histograms_every=2), make_view(tmp_path), steps=5)
    events = read(tmp_path)
    assert {"weights/layer.weight", "gradients/layer.weight"} <= set(events.Tags()["histograms"])
    assert [event.step for event in events.Histograms("gradients/layer.bias")] == [2, 4]


def test_a_gradient_is_that_of_one_step(tmp_path: Path) -> None:
    train(TensorBoardExtras(histograms_every=2), make_view(tmp_path), steps=2)
    shown = read(tmp_path).Histograms("gradients/layer.bias")[0].histogram_value
    assert (shown.num, shown.sum) == (1, 4.0)


def test_hooks_are_gone_after_the_end(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    train(TensorBoardExtras(histograms_every=1), view)
    assert not any(parameter._backward_hooks for parameter in view.model.parameters())


def test_the_graph_is_that_of_the_model(tmp_path: Path) -> None:
    train(TensorBoardExtras(graph=True), make_view(tmp_path))
    assert any("layer" in node.name for node in read(tmp_path).Graph().node)


def test_a_graph_of_a_model_that_takes_a_batch_is_refused(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    view.arguments = lambda batch: ([batch], {})
    with pytest.raises(ModelError, match="tensors only"):
        train(TensorBoardExtras(graph=True), view)


def test_images_are_written_at_the_first_step_and_then_every_n(tmp_path: Path) -> None:
    train(TensorBoardExtras(images="image", images_every=2), make_view(tmp_path), steps=4)
    assert [event.step for event in read(tmp_path).Images("image")] == [1, 3]


def test_a_column_that_is_no_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="images='x' must be"):
        train(TensorBoardExtras(images="x"), make_view(tmp_path))


def test_a_missing_image_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"images='photo'.*'image'"):
        train(TensorBoardExtras(images="photo"), make_view(tmp_path))


def test_text_is_written_once(tmp_path: Path) -> None:
    train(TensorBoardExtras(text={"note": "try more"}), make_view(tmp_path), steps=2)
    events = read(tmp_path).Tensors("note/text_summary")
    assert [tensor_util.make_ndarray(e.tensor_proto)[0] for e in events] == [b"try more"]


def test_a_pr_curve_counts_the_rows_of_the_last_batch(tmp_path: Path) -> None:
    train(TensorBoardExtras(pr_curves="label"), make_view(tmp_path))
    (event,) = read(tmp_path).Tensors("label")
    curve = tensor_util.make_ndarray(event.tensor_proto)
    true_positives, false_positives = curve[0][0], curve[1][0]
    assert (true_positives, false_positives) == (2, 2)


def test_a_pr_curve_of_two_classes_is_that_of_their_difference(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    classes = torch.tensor([[2.0, 1.0], [0.0, 5.0], [-1.0, 3.0], [9.0, 1.0]])
    view.model.forward = lambda x: classes  # type: ignore[method-assign]
    callback = TensorBoardExtras(pr_curves="label")
    callback.on_start(view)
    callback.on_epoch_end(view)
    callback.on_end(view)
    (event,) = read(tmp_path).Tensors("label")
    curve = tensor_util.make_ndarray(event.tensor_proto)
    middle = curve.shape[1] // 2
    assert (curve[0][middle], curve[1][middle]) == (2, 0)


def test_a_pr_curve_of_several_outputs_per_row_is_refused(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    view.model.layer = nn.Linear(2, 3)
    with pytest.raises(ModelError, match="one output per row"):
        train(TensorBoardExtras(pr_curves="label"), view)


def test_looking_at_the_model_changes_neither_it_nor_the_random_numbers(tmp_path: Path) -> None:
    def run(callback: Any) -> tuple[Any, float]:
        torch.manual_seed(3)
        view = make_view(tmp_path)
        train(callback, view)
        return view.model.norm.running_mean.tolist(), torch.rand(1).item()

    assert run(TensorBoardExtras(graph=True, pr_curves="label")) == run(TensorBoardExtras())


def test_the_model_stays_in_training_mode(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    train(TensorBoardExtras(pr_curves="label"), view)
    assert view.model.training


def test_only_the_first_worker_writes(tmp_path: Path) -> None:
    train(TensorBoardExtras(histograms_every=1, text={"a": "b"}), make_view(tmp_path, rank=1))
    assert not list(tmp_path.iterdir())


def test_without_tensorboard_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependencyError, match="pip install tensorboard"):
        TensorBoardExtras().on_start(make_view(tmp_path))
