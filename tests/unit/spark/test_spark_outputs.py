"""Outputs as the columns that Spark's evaluators take."""

from typing import Any

import pytest
import torch

from flambeau.errors import ModelError
from flambeau.spark.outputs import spark_columns

LOGITS = torch.tensor([[2.0, -1.0], [0.0, 3.0], [-1.0, -1.0]])


def columns(output: Any, loss: Any) -> dict[str, list[Any]]:
    return {each.key: found.to_pylist() for each, found in spark_columns(output, loss).items()}


def test_classes() -> None:
    found = columns(LOGITS, "cross_entropy")
    assert found["prediction"] == [0.0, 1.0, 0.0]
    assert found["raw"] == LOGITS.tolist()
    assert found["probability"][2] == [0.5, 0.5]


@pytest.mark.parametrize("loss", ["bce", "bce_prob"])
def test_one_label(loss: str) -> None:
    given = LOGITS[:, 1] if loss == "bce" else LOGITS[:, 1].sigmoid()
    found = columns(given, loss)
    assert found["prediction"] == [0.0, 1.0, 0.0]
    assert found["raw"][1] == pytest.approx([-3.0, 3.0], rel=1e-5)
    assert found["probability"][1] == pytest.approx([0.0474259, 0.9525741], rel=1e-5)


def test_several_labels_are_those_that_apply() -> None:
    found = columns(LOGITS, "bce")
    assert found["prediction"] == [[0.0], [1.0], []]
    assert found["probability"][2] == pytest.approx(LOGITS[2].sigmoid().tolist())


def test_values() -> None:
    assert columns(LOGITS[:, :1], "mse") == {"prediction": [2.0, 0.0, -1.0]}
    assert columns(LOGITS.reshape(3, 2, 1), None) == {"prediction": LOGITS.tolist()}


def test_several_tasks() -> None:
    loss = {"click": "bce", "price": None}
    found = columns((LOGITS[:, 0], LOGITS[:, 1]), loss)
    assert set(found) == {"click_prediction", "click_probability", "click_raw", "price_prediction"}
    assert found["price_prediction"] == [-1.0, 3.0, -1.0]
    assert set(columns([LOGITS, LOGITS], None)) == {"output0_prediction", "output1_prediction"}


def test_what_is_no_tensor_is_an_error() -> None:
    with pytest.raises(ModelError, match="cannot write predictions of type int"):
        columns(3, None)
