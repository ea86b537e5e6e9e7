import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import nn

from flambeau.checkpoint import RunDirectory
from flambeau.config import (
    ArrayData,
    CodeRef,
    DatasetData,
    FileData,
    FrameData,
    LoaderData,
    OptimizerSpec,
    Schedule,
    Spark,
)
from flambeau.data.data_kinds import takes_an_argument
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.frame_source import open_frame, schema_of_frame
from flambeau.data.sources.shared_files import located
from flambeau.driver.job_packager import JobPackager
from flambeau.errors import ConfigError, ModelError


@pytest.fixture
def description(tmp_path: Path) -> Iterator[JobPackager]:
    with JobPackager(tmp_path) as description:
        yield description


class Numbers:
    """A map-style dataset."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> int:
        return row


def make_arrays() -> Any:
    return np.zeros(3), np.zeros(3)


def make_loader(shard: Any) -> Any:
    return []


def test_an_importable_class_goes_by_its_path(description: JobPackager) -> None:
    assert description.model(nn.ReLU) == CodeRef(path="torch.nn.modules.activation:ReLU")


def test_an_instance_goes_by_value(description: JobPackager, tmp_path: Path) -> None:
    ref = description.model(nn.Linear(2, 1))
    assert ref.value == "model.pkl"
    description.packer.write(tmp_path / "code")
    assert (tmp_path / "code" / "model.pkl").exists()


def test_urls_stay_as_they_are(description: JobPackager) -> None:
    url = "http://host:80//data/a.csv?key=a=b#c"
    assert description.data(url, "train") == FileData(path=url)
    assert description.data([url, "b.csv"], "train") == FileData(path=(url, "b.csv"))


def test_a_reference_stays_as_it_is(description: JobPackager) -> None:
    ref = CodeRef(path="shop.models:Net", args={"width": 3})
    assert description.model(ref) is ref


def test_what_cannot_be_a_model_is_refused(description: JobPackager) -> None:
    with pytest.raises(ConfigError, match=r"model= is a int; give an nn\.Module"):
        description.model(3)


def test_what_cannot_travel_is_explained(description: JobPackager) -> None:
    model = nn.Linear(1, 1)
    model.lock = threading.Lock()
    with pytest.raises(ModelError, match="cannot be sent to the workers"):
        description.model(model)


@pytest.mark.parametrize("value", [None, "bce", Schedule(warmup=3), CodeRef(path="a:b")], ids=repr)
def test_names_and_settings_stay_as_they_are(description: JobPackager, value: Any) -> None:
    assert description.code(value, "loss") is value


def test_functions_of_several_tasks_get_names_of_their_own(description: JobPackager) -> None:
    given = {"click": "bce", "buy": lambda output, batch: output, "see": lambda output, batch: 0}
    found = description.code(given, "loss")
    values = [ref.value for ref in (found["buy"], found["see"])]
    assert found["click"] == "bce"
    assert values == ["loss-buy.pkl", "loss-see.pkl"]


def test_an_optimizer_may_be_a_name_a_spec_a_function_or_several(description: JobPackager) -> None:
    spec = OptimizerSpec(name="sgd", args={"lr": 0.1})
    assert description.optimizer("adam") == OptimizerSpec(name="adam")
    assert description.optimizer(spec) is spec
    assert description.optimizer(lambda parameters: None).value == "optimizer.pkl"
    assert description.optimizer({"gen": "adam", "disc": spec}) == {
        "gen": OptimizerSpec(name="adam"),
        "disc": spec,
    }


def test_an_optimizer_class_without_arguments_is_explained(description: JobPackager) -> None:
    with pytest.raises(ConfigError, match=r"fb.optim\(SGD, lr=...\)"):
        description.optimizer(torch.optim.SGD)


def test_callbacks_keep_their_order(description: JobPackager) -> None:
    found = description.callbacks([Numbers(), nn.ReLU])
    assert [ref.name for ref in found] == [
        "callback-0.pkl",
        "torch.nn.modules.activation:ReLU",
    ]


@pytest.mark.parametrize("path", ["train/*.parquet", Path("train/*.parquet")], ids=repr)
def test_a_path_is_files(description: JobPackager, path: Any) -> None:
    assert description.data(path, "train") == FileData(path="train/*.parquet")


def test_a_list_of_paths_is_files(description: JobPackager) -> None:
    assert description.data(["a.csv", Path("b.csv")], "train") == FileData(path=("a.csv", "b.csv"))


def test_settings_and_nothing_stay_as_they_are(description: JobPackager) -> None:
    data = FileData(path="x", format="csv")
    assert description.data(data, "train") is data
    assert description.data(None, "valid") is None


@pytest.mark.parametrize(
    "data",
    [
        (np.arange(3.0), np.arange(3)),
        (torch.arange(3.0), torch.arange(3)),
        {"x": np.arange(3.0), "y": np.arange(3)},
        np.arange(3.0),
    ],
    ids=["arrays", "tensors", "columns", "one array"],
)
def test_arrays_are_spooled_where_workers_can_map_them(description: JobPackager, data: Any) -> None:
    ref = description.data(data, "train")
    assert isinstance(ref, ArrayData)
    source = ArraySource(ref)
    assert source.take(np.array([2]))[source.columns[0]].tolist() == [2.0]


def test_spooled_arrays_are_given_back_in_the_end(tmp_path: Path) -> None:
    with JobPackager(tmp_path) as description:
        description.data((np.zeros(3), np.zeros(3)), "train")
        descriptors = list(description.fds)
    assert descriptors
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_dataset_goes_as_code(description: JobPackager) -> None:
    ref = description.data(Numbers(), "train")
    assert isinstance(ref, DatasetData)
    assert (ref.code.value, ref.code.call) == ("train.pkl", False)


def test_a_function_without_arguments_gives_the_data_on_the_workers(
    description: JobPackager,
) -> None:
    ref = description.data(make_arrays, "train")
    assert isinstance(ref, DatasetData)
    assert ref.code.call


def test_a_function_of_a_shard_gives_batches(description: JobPackager) -> None:
    assert isinstance(description.data(make_loader, "train"), LoaderData)


def test_what_cannot_be_data_is_refused(description: JobPackager) -> None:
    with pytest.raises(ConfigError, match=r"valid= is a float; give \(x, y\) arrays"):
        description.data(3.5, "valid")


@pytest.mark.parametrize(
    ("function", "needs"),
    [
        (lambda: 0, False),
        (lambda shard: 0, True),
        (lambda shard=None: 0, False),
        (lambda *args, **kwargs: 0, False),
    ],
)
def test_only_an_argument_without_a_default_is_needed(function: Any, needs: bool) -> None:
    assert takes_an_argument(function) is needs


@pytest.mark.parametrize("given", ["cosine", {"kind": "cosine"}])
def test_a_schedule_may_be_a_name_or_a_dict(tmp_path: Path, given: Any) -> None:
    assert JobPackager(tmp_path).schedule(given) == {"kind": "cosine"}


def test_a_frame_is_shared_as_it_is(description: JobPackager) -> None:
    frame = pl.DataFrame({"city": ["a", None], "age": [1, 2]})
    data = description.data(frame, "train")
    assert isinstance(data, FrameData)
    assert description.fds == (data.fd,)
    mixed = open_frame(data).take(np.array([1, 0]))
    assert mixed.to_pydict() == {"city": [None, "a"], "age": [2, 1]}
    schema = schema_of_frame(data)
    assert schema.types == open_frame(data).schema.types
    assert [field.nullable for field in schema] == [True, False]


def test_data_for_workers_elsewhere_is_in_the_run_directory(tmp_path: Path) -> None:
    x, y = np.arange(6.0).reshape(3, 2), torch.arange(3)
    np.save(tmp_path / "x.npy", x)
    with JobPackager(tmp_path, Spark(2)) as description:
        arrays = description.data((np.load(tmp_path / "x.npy", mmap_mode="r"), y), "train")
        frame = description.data(pa.table({"a": [1, None]}), "valid")
        assert isinstance(arrays, ArrayData)
        assert isinstance(frame, FrameData)
        assert description.fds == ()
        assert not any(ref.lasts for ref in arrays.columns.values())
        source = ArraySource(located(arrays, tmp_path))
        assert np.array_equal(source.take(np.array([2, 0]))[arrays.inputs[0]], x[[2, 0]])
        assert open_frame(located(frame, tmp_path)).take(np.arange(2)).to_pylist() == [
            {"a": 1},
            {"a": None},
        ]
    assert not RunDirectory(tmp_path).shared.exists()


def test_what_a_killed_driver_has_left_is_removed(tmp_path: Path) -> None:
    left = JobPackager(tmp_path, Spark(2))
    left.data(np.ones(3), "train")
    assert RunDirectory(tmp_path).shared.exists()
    with JobPackager(tmp_path):
        assert not RunDirectory(tmp_path).shared.exists()


def test_data_that_cannot_travel_is_refused_before_anything_starts(tmp_path: Path) -> None:
    rows = np.zeros((3, 1 << 18), np.float32)
    reach = {"shared_files": False, "carry_mb": 2}
    with JobPackager(tmp_path, Spark(2, **reach)) as description:
        with pytest.raises(ConfigError, match=r"at least 3 MB.*carry_mb=2 .*depot='hdfs"):
            description.data(rows, "train")
        assert not RunDirectory(tmp_path).shared.exists()
    for more in ({**reach, "depot": "memory://folder"}, {**reach, "shared_files": True}):
        with JobPackager(tmp_path, Spark(2, **more)) as description:
            description.data(rows, "train")
