"""Which data is read by a thread ahead of the training, and which when it is used."""

import os
import threading

import numpy as np
import pytest
import torch

from flambeau.config import ArrayData, ArrayRef, Binding, Loading
from flambeau.coordination.plans import IndexedPlan
from flambeau.data.batch import Batch
from flambeau.data.binding import Binder, Shape
from flambeau.data.loader import IndexedLoader, Transform
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.shared_arrays import share_arrays


def _forward(x: torch.Tensor) -> None: ...


def _threads(source: ArraySource, transform: Transform | None = None) -> set[str]:
    """The threads that run while the first of four batches is looked at."""
    binder = Binder(Binding(inputs={"x": "x"}), _forward, Shape(source.columns))
    plan = IndexedPlan(8, batch_size=2, workers=1, seed=0)
    loader = IndexedLoader(source, plan, 0, binder, transform, Loading(read_ahead=1), 0)
    steps = loader.epoch(0)
    next(steps)
    names = {thread.name for thread in threading.enumerate()}
    steps.close()
    return names


@pytest.fixture
def spooled(tmp_path):
    refs, descriptors = share_arrays({"x": np.arange(8.0, dtype=np.float32)}, tmp_path)
    yield ArraySource(ArrayData(columns=refs))
    for descriptor in descriptors:
        os.close(descriptor)


def test_spooled_arrays_need_no_thread(spooled):
    assert "flambeau-loader" not in _threads(spooled)


def test_a_transform_is_done_by_a_thread(spooled):
    def same(batch: Batch) -> Batch:
        return batch

    assert "flambeau-loader" in _threads(spooled, same)


def test_a_file_of_the_user_is_read_by_a_thread(tmp_path):
    path = tmp_path / "x.bin"
    np.arange(8.0, dtype=np.float32).tofile(path)
    ref = ArrayRef(path=str(path), dtype="float32", shape=(8,))
    assert "flambeau-loader" in _threads(ArraySource(ArrayData(columns={"x": ref})))
