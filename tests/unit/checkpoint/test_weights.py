"""Weights of a checkpoint into a model."""

import pytest
import torch
from torch import nn

from flambeau.checkpoint.weights import load_all_weights, load_weights
from flambeau.errors import ModelError


def make_model(out: int = 2) -> nn.Module:
    return nn.ModuleDict({"encoder": nn.Linear(3, 3), "head": nn.Linear(3, out)})


def zeros_like(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(value) for name, value in model.state_dict().items()}


def is_zero(module: nn.Module) -> bool:
    return not any(parameter.any() for parameter in module.parameters())


def test_all_weights_are_copied() -> None:
    model = make_model()
    report = load_weights(model, zeros_like(model))
    assert report.complete
    assert is_zero(model)


def test_a_pattern_limits_what_is_looked_at() -> None:
    model = make_model()
    report = load_weights(model, zeros_like(model), "encoder.*")
    assert report.loaded == ("encoder.weight", "encoder.bias")
    assert report.complete
    assert is_zero(model["encoder"])  # type: ignore[index]
    assert not is_zero(model["head"])  # type: ignore[index]


def test_several_patterns() -> None:
    model = make_model()
    report = load_weights(model, zeros_like(model), ["*.bias", "head.*"])
    assert set(report.loaded) == {"encoder.bias", "head.weight", "head.bias"}


def test_what_does_not_fit_is_reported_and_the_rest_loaded() -> None:
    model = make_model(out=2)
    weights = zeros_like(make_model(out=5)) | {"extra": torch.ones(1)}
    del weights["encoder.bias"]
    report = load_weights(model, weights)
    assert report.loaded == ("encoder.weight",)
    assert report.missing == ("encoder.bias",)
    assert report.unexpected == ("extra",)
    assert report.mismatched == (
        "head.weight [5, 3] in the checkpoint, [2, 3] in the model",
        "head.bias [5] in the checkpoint, [2] in the model",
    )


def test_the_strict_variant_lists_what_does_not_fit() -> None:
    weights = zeros_like(make_model(out=5)) | {"extra": torch.ones(1)}
    with pytest.raises(ModelError, match=r"(?s)unexpected: extra\nmismatched: head\.weight \[5"):
        load_all_weights(make_model(), weights)


def test_the_strict_variant_leaves_the_model_alone() -> None:
    model = make_model()
    weights = zeros_like(model)
    del weights["head.bias"]
    with pytest.raises(ModelError, match=r"missing: head\.bias"):
        load_all_weights(model, weights)
    assert not is_zero(model["encoder"])  # type: ignore[index]


def test_the_strict_variant_loads_what_fits() -> None:
    model = make_model()
    load_all_weights(model, zeros_like(model))
    assert is_zero(model)


def test_a_lazy_layer_takes_the_shape_of_the_checkpoint() -> None:
    model = nn.LazyLinear(2)
    load_all_weights(model, {"weight": torch.zeros(2, 7), "bias": torch.zeros(2)})
    assert model.weight.shape == (2, 7)
