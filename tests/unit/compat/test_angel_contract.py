"""What is said about files that are no models of Angel's."""

import angel_modules
import pytest
import torch
from angel_modules import (
    BiasWeight,
    BiasWeightEmbedding,
    Mats,
    OptionalFields,
    SeveralTasks,
    saved,
)
from torch import Tensor, nn

from flambeau.compat.angel import load
from flambeau.errors import ModelError


class Bare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class WithoutForward(BiasWeight):
    """Has `forward_`, but it is not compiled."""

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        return values


class OtherArity(BiasWeight):
    def forward_(
        self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor, bias: Tensor
    ) -> Tensor:
        return values

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        return self.forward_(batch_size, index, feats, values, self.bias)


class OneMore(BiasWeight):
    def forward(
        self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor, fields: Tensor
    ) -> Tensor:
        return self.forward_(batch_size, index, feats, values, self.bias, self.weights[feats])


class NoBias(BiasWeight):
    def __init__(self):
        super().__init__()
        del self.bias

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        weights = self.weights[feats]
        return self.forward_(batch_size, index, feats, values, values, weights)


class NoMats(Mats):
    def __init__(self):
        super().__init__()
        self.mats = torch.zeros(1)

    def forward(self, batch_size: int, index: Tensor, feats: Tensor, values: Tensor) -> Tensor:
        rows = self.weights[feats]
        return self.forward_(
            batch_size, index, feats, values, self.bias, rows, rows, [self.mats, self.mats]
        )


def changed(module: nn.Module, **attributes) -> nn.Module:
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


@pytest.mark.parametrize("kind", angel_modules.MODULES)
def test_each_type_is_accepted(kind, tmp_path):
    module = kind()
    assert load(saved(module, tmp_path)).contract.kind == module.kind


def test_the_contract_says_what_the_model_is(tmp_path):
    contract = load(saved(Mats(), tmp_path)).contract
    assert (contract.input_dim, contract.embedding_dim, contract.n_fields) == (12, 3, 2)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Bare(), r"model\.pt has no method forward_\(\)"),
        (WithoutForward(), r"has no method forward_\(\)"),
        (BiasWeight("BIAS_WEIGTH"), "gives 'BIAS_WEIGTH'; did you mean 'BIAS_WEIGHT'"),
        (OtherArity(), r"forward_\(batch_size, index, feats, values, bias\) takes 5 arguments"),
        (OneMore(), r"values, fields\) takes 5 arguments.*further arguments need defaults"),
        (BiasWeight("BIAS_WEIGHT_EMBEDDING"), "for type BIAS_WEIGHT_EMBEDDING it must be"),
        (changed(BiasWeight(), input_dim=-1), "input_dim=-1; it must be 1 or more"),
        (changed(BiasWeight(), input_dim="12"), "has no attribute input_dim"),
        (changed(BiasWeightEmbedding(), embedding_dim=4), r"must be \[any, 4\]"),
        (NoBias(), "has no parameter bias"),
        (NoMats(), "has no attribute mats, a list of tensors"),
        (changed(BiasWeight(), extra=nn.Linear(1, 1)), "the parameter extra.weight is not passed"),
    ],
)
def test_what_is_missing_is_named(module, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        load(saved(module, tmp_path))


@pytest.mark.parametrize(("encode", "fields"), [("onehot", False), ("multihot", True)])
def test_an_argument_with_a_default_is_given_what_the_type_names(encode, fields, tmp_path):
    contract = load(saved(OptionalFields(encode), tmp_path)).contract
    assert contract.takes_fields is fields


def test_models_of_several_tasks_name_what_replaces_them(tmp_path):
    with pytest.raises(ModelError, match="own models 'mmoe' and 'esmm' replace them") as caught:
        load(saved(SeveralTasks(), tmp_path))
    assert "BIAS_WEIGHT" not in str(caught.value)


def test_other_files_are_no_torchscript(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"not at all")
    with pytest.raises(ModelError, match="is not a TorchScript file"):
        load(tmp_path / "model.pt")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "state.pt")
    with pytest.raises(ModelError, match="is not a TorchScript file"):
        load(tmp_path / "state.pt")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"none\.pt cannot be read: No such file"):
        load(tmp_path / "none.pt")
