"""Params of the Spark ML stages, without Spark running."""

from typing import Any

import pytest
import torch

import flambeau as fb
from flambeau.errors import ConfigError
from flambeau.spark import TorchEstimator, TorchModel, values


def test_every_param_has_a_getter_a_setter_a_default_and_a_text() -> None:
    stage = TorchEstimator()
    for param in stage.params:
        suffix = param.name[0].upper() + param.name[1:]
        assert len(param.doc) > 10
        assert stage.hasDefault(param)
        assert getattr(stage, f"get{suffix}")() == stage.getOrDefault(param)
        assert f"`{param.name}`" in getattr(stage, f"set{suffix}").__doc__
    assert "epochs: how often all rows are trained on (default: 1)" in stage.explainParams()


def test_setters_can_be_chained() -> None:
    stage = TorchEstimator(epochs=3).setBatchSize(7).setParams(seed=5)
    assert (stage.getEpochs(), stage.getBatchSize(), stage.getSeed()) == (3, 7, 5)
    assert stage.copy({stage.epochs: 4}).getEpochs() == 4
    assert stage.getEpochs() == 3


def test_a_name_that_is_not_known_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="TorchEstimator has no epoch; did you mean 'epochs'"):
        TorchEstimator(epoch=3)
    with pytest.raises(ConfigError, match="TorchModel has no epoch; did you mean 'epochs'"):
        TorchModel(epoch=3)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epochs": 0}, '"epochs". 0: give at least 1'),
        ({"epochs": 1.5}, '"epochs". 1.5 is not a whole number'),
        ({"seed": -1}, "-1 is not a whole number of at least 0"),
        ({"learningRate": 0}, "0 is not above 0"),
        ({"learningRate": "x"}, "'x' is not a number"),
        ({"validationFraction": 1.0}, "1.0: give a share from 0 to below 1"),
        ({"featuresCol": 3}, "3 is not a name"),
        ({"metrics": "auc"}, "'auc' is one text; give a list"),
        ({"modelParams": 3}, "3 is not a dict"),
        ({"loss": torch.nn.MSELoss}, r"MSELoss is a class: give MSELoss\(\)"),
    ],
)
def test_a_wrong_value_is_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        TorchEstimator(**params)


def test_a_strategy_is_kept_as_json() -> None:
    kept = TorchEstimator(strategy=fb.ParameterServer(servers=3)).getStrategy()
    assert kept == {"kind": "parameter_server", "servers": 3}
    assert values.build_strategy(kept) == fb.ParameterServer(servers=3)
    assert values.build_strategy(values.strategy("hybrid")) == fb.Hybrid()
    with pytest.raises(ConfigError, match="strategy"):
        TorchEstimator(strategy="allreduce")


def test_an_optimizer_is_kept_as_json() -> None:
    kept = TorchEstimator(optimizer=torch.optim.SGD).getOptimizer()
    assert values.build_optimizer(kept, 0.5) == fb.optim(torch.optim.SGD, lr=0.5)
    given = TorchEstimator(optimizer=fb.optim("adam", lr=0.1)).getOptimizer()
    assert values.build_optimizer(given, None) == fb.optim("adam", lr=0.1)
    with pytest.raises(ConfigError, match="unknown optimizer"):
        values.build_optimizer("adamm", None)


@pytest.mark.parametrize(
    ("loss", "meaning"),
    [
        (None, None),
        ("bce", "bce"),
        (torch.nn.CrossEntropyLoss(), "cross_entropy"),
        (torch.nn.MSELoss(), None),
        (lambda output, batch: 0, None),
        ({"a": "bce", "b": torch.nn.NLLLoss()}, {"a": "bce", "b": "nll"}),
    ],
)
def test_a_loss_says_what_outputs_mean(loss: Any, meaning: Any) -> None:
    assert values.meaning(loss) == meaning
