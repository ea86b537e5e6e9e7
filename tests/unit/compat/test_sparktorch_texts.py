import pytest
import torch
from torch import Tensor, nn

from flambeau.compat import sparktorch
from flambeau.compat.sparktorch import serialize_torch_obj, serialize_torch_obj_lazy
from flambeau.compat.sparktorch.criterion import Criterion
from flambeau.compat.sparktorch.inference import convert_to_serialized_torch
from flambeau.compat.sparktorch.pipeline_util import PysparkPipelineWrapper
from flambeau.compat.sparktorch.tests.simple_net import NetworkWithParameters
from flambeau.compat.sparktorch.util import TorchObject, from_text
from flambeau.data.batch import Batch
from flambeau.errors import ConfigError


def batch(label: Tensor) -> Batch:
    return Batch({"features": torch.ones(4, 3), "label": label}, 4)


def test_a_network_is_a_text_with_what_its_training_needs() -> None:
    text = serialize_torch_obj(nn.Linear(3, 1), nn.MSELoss(), torch.optim.SGD, lr=0.5)
    found = from_text(text, TorchObject, "")
    assert isinstance(found.model, nn.Linear)
    assert isinstance(found.criterion, nn.MSELoss)
    assert (found.optimizer, found.optimizer_params) == (torch.optim.SGD, {"lr": 0.5})


def test_a_lazy_one_has_classes() -> None:
    text = serialize_torch_obj_lazy(
        NetworkWithParameters, nn.MSELoss, torch.optim.SGD, {"lr": 0.5}, {"param": 7}
    )
    found = from_text(text, TorchObject, "")
    assert found.model is NetworkWithParameters
    assert found.model_parameters == {"param": 7}


@pytest.mark.parametrize("text", ["", "no text of ours", convert_to_serialized_torch(nn.ReLU())])
def test_another_text_is_a_mistake(text: str) -> None:
    with pytest.raises(ConfigError, match=r": torchObj is serialize_torch_obj\(\.\.\.\)"):
        from_text(text, TorchObject, "torchObj is serialize_torch_obj(...)")


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_number_is_compared_in_the_shape_of_the_output(shape: tuple[int, ...]) -> None:
    criterion = Criterion(nn.MSELoss(), "features", "label")
    label = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    assert criterion(torch.zeros(shape), batch(label)).item() == 7.5


def test_a_criterion_that_takes_no_floats_gets_classes() -> None:
    criterion = Criterion(nn.CrossEntropyLoss(), "features", "label")
    logits = torch.tensor([[9.0, 0.0, 0.0]] * 4)
    for _ in range(2):
        assert criterion(logits, batch(torch.zeros(4, dtype=torch.float64))).item() < 0.01


def test_without_a_label_the_input_is_the_target() -> None:
    criterion = Criterion(nn.MSELoss(), "features", None)
    assert criterion(torch.zeros(4, 3), batch(torch.zeros(4))).item() == 1.0


def test_an_output_that_fits_neither_way_fails_as_torch_says_at_first() -> None:
    criterion = Criterion(nn.MSELoss(), "features", "label")
    with (
        pytest.warns(UserWarning, match="target size"),
        pytest.raises(RuntimeError, match="must match the size"),
    ):
        criterion(torch.zeros(3, 2), batch(torch.zeros(4)))


def test_vectors_are_no_classes() -> None:
    criterion = Criterion(nn.CrossEntropyLoss(), "features", "label")
    with pytest.raises(RuntimeError):
        criterion(torch.zeros(4, 3), batch(torch.zeros(4, 2)))


def test_unwrap_takes_pipelines() -> None:
    with pytest.raises(TypeError, match="unwrap takes a Pipeline or PipelineModel, not 'a'"):
        PysparkPipelineWrapper.unwrap("a")  # type: ignore[arg-type]


def test_a_name_that_sparktorch_has_not_is_an_attribute_error() -> None:
    assert not hasattr(sparktorch, "SparkTorchModel")
    assert set(sparktorch.__all__) <= set(dir(sparktorch))


def test_sparktorchs_other_name_for_synchronous_is_taken_for_it() -> None:
    with pytest.warns(UserWarning, match="mode='async' is SparkTorch's other name for its sync"):
        learner = sparktorch.SparkTorch(mode="async")
    assert learner.getMode() == "synchronous"
    with pytest.raises(TypeError, match="mode='free': use 'synchronous' or 'hogwild'"):
        sparktorch.SparkTorch(mode="free")
