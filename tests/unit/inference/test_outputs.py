from typing import Any

import pytest
import torch

from flambeau.errors import ModelError
from flambeau.inference.outputs import prediction_columns

LOGITS = torch.tensor([2.0, -1.0, 0.0])
CLASSES = torch.tensor([[0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])


def columns(output: Any, loss: str | None) -> dict[str, list[Any]]:
    return {name: array.to_pylist() for name, array in prediction_columns(output, loss).items()}


@pytest.mark.parametrize("output", [LOGITS, LOGITS.unsqueeze(1)], ids=["flat", "one column"])
def test_bce_gives_the_class_and_its_probability(output: torch.Tensor) -> None:
    found = columns(output, "bce")
    assert found["prediction"] == [1, 0, 0]
    assert found["probability"] == pytest.approx(torch.sigmoid(LOGITS).tolist())


def test_bce_prob_takes_probabilities_as_they_are() -> None:
    found = columns(torch.tensor([0.75, 0.25]), "bce_prob")
    assert found == {"prediction": [1, 0], "probability": [0.75, 0.25]}


@pytest.mark.parametrize("loss", ["bce", "cross_entropy"])
def test_no_class_is_given_where_the_output_is_not_a_number(loss: str) -> None:
    output = torch.tensor([[0.2, 2.0], [float("nan"), 1.0]])[:, : 1 if loss == "bce" else 2]
    prediction = prediction_columns(output, loss)["prediction"]
    assert prediction.to_pylist() == [1, None]


def test_bce_of_several_labels_gives_lists() -> None:
    found = columns(torch.tensor([[2.0, -2.0]]), "bce")
    assert found["prediction"] == [[1, 0]]
    assert set(found) == {"prediction", "probabilities"}


@pytest.mark.parametrize(
    ("loss", "output"), [("cross_entropy", CLASSES), ("nll", CLASSES.log_softmax(1))]
)
def test_classes_have_a_prediction_and_probabilities(loss: str, output: torch.Tensor) -> None:
    found = columns(output, loss)
    assert found["prediction"] == [1, 0]
    expected = CLASSES.softmax(1).tolist()
    assert [pytest.approx(row) for row in expected] == found["probabilities"]


@pytest.mark.parametrize("loss", ["mse", None])
def test_any_other_output_is_the_prediction_itself(loss: str | None) -> None:
    assert columns(LOGITS, loss) == {"prediction": LOGITS.tolist()}


def test_outputs_of_several_dimensions_are_flat_lists() -> None:
    assert columns(torch.arange(8.0).reshape(2, 2, 2), None)["prediction"] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_several_outputs_are_named_by_task_or_number() -> None:
    assert set(columns({"click": LOGITS, "buy": LOGITS}, "mse")) == {
        "click_prediction",
        "buy_prediction",
    }
    assert set(columns((LOGITS, LOGITS), "bce")) == {
        "output0_prediction",
        "output0_probability",
        "output1_prediction",
        "output1_probability",
    }


def test_low_precision_outputs_are_written_as_float32() -> None:
    (array,) = prediction_columns(LOGITS.bfloat16(), None).values()
    assert str(array.type) == "float"


def test_what_is_no_tensor_cannot_be_written() -> None:
    with pytest.raises(ModelError, match="predictions of type str"):
        prediction_columns("high", None)


@pytest.mark.parametrize("as_tuple", [False, True], ids=["dict", "tuple"])
def test_each_task_is_read_by_its_own_loss(as_tuple: bool) -> None:
    outputs = {"click": LOGITS, "price": torch.tensor([4.0, 5.0, 6.0])}
    given = tuple(outputs.values()) if as_tuple else outputs
    found = prediction_columns(given, {"click": "bce", "price": "mse"})
    assert found["click_prediction"].to_pylist() == [1, 0, 0]
    assert found["price_prediction"].to_pylist() == [4.0, 5.0, 6.0]
