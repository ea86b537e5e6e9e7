from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch import Tensor, nn

from flambeau.clusters.spool import Spool
from flambeau.config import Binding, CodeRef, DatasetData, FileData, Images, JobSettings, LoaderData
from flambeau.data.batch import Batch
from flambeau.data.loader import IndexedLoader, IterableLoader, StreamedLoader
from flambeau.data.source import IterableSource, Share, Source
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.engine_frames import EngineFrameSource
from flambeau.errors import DataError, ModelError
from flambeau.runs import open_data, open_model
from flambeau.runs.open_data import Place
from flambeau.training.losses import TaskLosses

REF = CodeRef(path="m:thing")


class Net(nn.Module):
    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def code(found: Any) -> Callable[[CodeRef], Any]:
    """A loader of code that finds this, whatever the reference."""
    return lambda ref: found(**ref.args) if ref.call else found


def job(**settings: Any) -> JobSettings:
    values = {"model": REF, "train": FileData(path="x"), "batch_size": 4, **settings}
    return JobSettings(**values)


def arrays(rows: int = 10) -> ArraySource:
    return open_data.array_source((np.zeros((rows, 2), dtype=np.float32), np.arange(rows)))


@pytest.fixture
def parquet(tmp_path: Path) -> Source:
    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(pa.table({"x": np.zeros(10), "y": np.arange(10)}), path)
    return open_data.open_data(FileData(path=str(path)), code(None))


class Endless(IterableSource):
    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        while True:
            yield Batch({"x": torch.zeros(1, 2), "y": torch.zeros(1)}, 1)


class Empty(IterableSource):
    def batches(self, share: Share, batch_size: int) -> Iterator[Batch]:
        return iter(())


def load(source: Source, place: Place | None = None, *, train: bool = True, **more: Any) -> Any:
    settings = job(**more)
    binder = open_data.make_binder(settings, Net(), source, whole_batch=False)
    return open_data.make_loader(source, settings, binder, place or Place(), train=train)


def test_an_instance_is_the_model() -> None:
    model = Net()
    assert open_model.build_model(REF, code(model)) is model


def test_a_class_is_called_with_its_arguments() -> None:
    model = open_model.build_model(CodeRef(path="m:Net", args={"width": 5}), code(Net))
    assert isinstance(model, Net)
    assert model.layer.in_features == 5


@pytest.mark.parametrize("found", [3, lambda: "no model"], ids=["a number", "a function"])
def test_what_gives_no_model_is_named(found: Any) -> None:
    with pytest.raises(ModelError, match=r"model m:thing is a (int|str); it must be"):
        open_model.build_model(REF, code(found))


def test_losses_of_tasks_may_be_names_and_code() -> None:
    loss = open_model.open_loss(job(loss={"a": "mse", "b": REF}), code(nn.L1Loss()))
    assert isinstance(loss, TaskLosses)
    assert list(loss.tasks) == ["a", "b"]


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({"loss": "mse"}, False),
        ({"loss": REF}, True),
        ({"loss": {"a": "mse", "b": REF}}, True),
        ({"step": REF}, True),
    ],
)
def test_the_users_own_code_gets_the_whole_batch(settings: Any, whole: bool) -> None:
    assert open_data.wants_whole_batch(job(**settings)) is whole


def test_shapes_come_from_arrays_files_and_iterators(parquet: Source) -> None:
    shapes = [open_data.shape_of(source) for source in (arrays(), parquet, Endless())]
    assert [shape.columns for shape in shapes] == [("x", "y")] * 3
    assert [shape.positional for shape in shapes] == [("x",), (), ()]


def test_an_iterator_that_gives_nothing_is_an_error() -> None:
    with pytest.raises(DataError, match="yields no items"):
        open_data.shape_of(Empty())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_are_brought_to_the_precision_of_the_model(dtype: torch.dtype) -> None:
    source, model = arrays(), Net().to(dtype)
    binder = open_data.make_binder(job(), model, source, whole_batch=False)
    batch = binder.assemble(source.take(np.arange(3)))
    assert batch["x"].dtype == dtype


def test_a_function_may_give_arrays() -> None:
    data = DatasetData(code=CodeRef(path="m:make", call=True))
    source = open_data.open_data(data, code(lambda: (np.ones(3), np.arange(3))))
    assert isinstance(source, ArraySource)
    assert source.take(np.array([2]))["y"].tolist() == [2]


def test_a_function_of_a_shard_gives_an_iterator() -> None:
    def batches(shard: Share) -> Any:
        return [{"x": torch.full((2,), shard.index)}]

    source = open_data.open_data(LoaderData(code=REF), code(batches))
    assert isinstance(source, IterableSource)
    (batch,) = source.batches(Share(1, 2, 0, 0), 4)
    assert batch["x"].tolist() == [1, 1]


def test_each_kind_of_source_has_its_loader(parquet: Source) -> None:
    kinds = [type(load(source)) for source in (arrays(), parquet, Endless())]
    assert kinds == [IndexedLoader, StreamedLoader, IterableLoader]


def labels(loader: Any, epoch: int = 0) -> list[int]:
    return [row for step in loader.epoch(epoch) for row in step.batch["y"].tolist()]


@pytest.mark.parametrize("kind", ["arrays", "parquet"])
def test_training_is_shuffled_and_evaluation_in_order(kind: str, parquet: Source) -> None:
    source = arrays() if kind == "arrays" else parquet
    binding = Binding(label="y")
    train = labels(load(source, binding=binding))
    assert sorted(train) == list(range(10)) != train
    assert labels(load(source, train=False, binding=binding)) == list(range(10))


def test_evaluation_has_a_batch_size_of_its_own_and_drops_nothing() -> None:
    more = {"evaluation": {"batch_size": 3}, "loading": {"drop_last": True}}
    assert load(arrays(), train=False, **more).steps() == 4
    assert load(arrays(), **more).steps() == 2


def test_fewer_rows_than_workers_are_an_error(parquet: Source) -> None:
    for source in (arrays(), parquet):
        with pytest.raises(DataError, match=r"10 rows for 11 workers; use fewer workers"):
            load(source, Place(0, 11))


def test_drop_last_that_leaves_nothing_is_an_error(parquet: Source) -> None:
    for source in (arrays(), parquet):
        with pytest.raises(DataError, match="the data has 10 rows, fewer than 8 x 2"):
            load(source, Place(0, 2), batch_size=8, loading={"drop_last": True})


def test_images_are_transformed_only_if_there_are_any() -> None:
    assert open_data.image_transform(None, arrays(), train=True, seed=0) is None
    transform = open_data.image_transform(
        Images(mean=(0.5,), std=(0.5,)), arrays(), train=True, seed=0
    )
    assert transform is not None
    batch = Batch({"x": torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)}, 1)
    assert transform(batch)["x"].unique().tolist() == [1.0]


def test_validation_files_of_unknown_format_are_read_as_those_of_the_training(
    tmp_path: Path,
) -> None:
    for name in ("t.libsvm", "v.test", "v.csv"):
        (tmp_path / name).write_text("1 0:1\n")

    def found(valid: str) -> Any:
        paths = {"train": tmp_path / "t.libsvm", "valid": tmp_path / valid}
        data = {name: FileData(path=str(path)) for name, path in paths.items()}
        return open_data.validation_data(JobSettings(model=CodeRef(path="m:M"), loss="bce", **data))

    assert found("v.test").format == "libsvm"
    assert found("v.csv").format is None


@pytest.mark.parametrize("train", [True, False])
def test_two_agents_with_two_workers_each_read_every_row_of_a_frame_once(train: bool) -> None:
    with Spool(("train",), None) as first, Spool(("train",), None) as second:
        spools = [first, second]
        counts = [[7, 6], [9]]
        numbers = iter(range(100))
        for spool, sizes in zip(spools, counts, strict=True):
            parts = [[float(next(numbers)) for _ in range(size)] for size in sizes]
            spool.fill(("train", pa.record_batch({"x": part})) for part in parts)
        read, steps = [], []
        for rank, agent in enumerate([0, 0, 1, 1]):
            descriptor = spools[agent].descriptors["train"]
            source = EngineFrameSource(descriptor, counts, agent, ["x"])
            loader = load(source, Place(rank, 4), train=train, evaluation={"batch_size": 4})
            own = list(loader.epoch(0))
            steps.append([step.all_rows for step in own])
            read.append([float(v) for step in own if step.batch for v in step.batch.columns["x"]])
    assert [len(rows) for rows in read] == [6, 7, 4, 5]
    assert sorted(value for rows in read for value in rows) == list(map(float, range(22)))
    assert steps == [[16, 6]] * 4
