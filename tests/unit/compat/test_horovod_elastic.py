"""Elastic state and sampler of Horovod's interface, in one process."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import flambeau.compat.horovod as hvd
from flambeau.compat.horovod import elastic
from flambeau.compat.horovod.common.exceptions import HorovodInternalError
from flambeau.compat.horovod.elastic.sampler import ElasticSampler


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLAMBEAU_ATTACH", "off")
    hvd.init()
    yield
    hvd.shutdown()


def test_restoring_goes_back_to_the_last_commit() -> None:
    model = nn.Linear(2, 1)
    state = elastic.TorchState(model, epoch=0)
    with torch.no_grad():
        model.weight.fill_(1.0)
    state.epoch = 1
    state.commit()
    with torch.no_grad():
        model.weight.fill_(2.0)
    state.epoch = 2
    state.restore()
    assert state.epoch == 1
    assert torch.equal(model.weight, torch.ones(1, 2))


def test_sharing_keeps_what_was_not_committed() -> None:
    model = nn.Linear(2, 1)
    state = elastic.TorchState(model, epoch=0)
    with torch.no_grad():
        model.weight.fill_(3.0)
    state.epoch = 5
    state.sync()
    assert state.epoch == 5
    assert torch.equal(model.weight, torch.full((1, 2), 3.0))


def test_a_loss_calls_the_function_again_from_the_last_commit() -> None:
    state = elastic.ObjectState(step=0)
    resets = []
    state.register_reset_callbacks([lambda: resets.append(state.step)])

    @elastic.run
    def train(state: elastic.ObjectState) -> int:
        while state.step < 3:
            state.step += 1
            if state.step == 2 and not resets:
                raise HorovodInternalError("a rank is lost")
            state.commit()
        return state.step

    assert train(state) == 3
    assert resets == [1]


def test_a_sampler_leaves_out_what_has_been_done() -> None:
    sampler = ElasticSampler(range(10), shuffle=False)
    sampler.record_batch(0, 4)
    saved = sampler.state_dict()
    other = ElasticSampler(range(10), shuffle=False)
    other.load_state_dict(saved)
    assert list(other) == [4, 5, 6, 7, 8, 9]
    other.unite([(0, {4, 5}), (7, {6})])
    assert list(other) == [6, 7, 8, 9]
    other.set_epoch(1)
    assert len(other) == 10
